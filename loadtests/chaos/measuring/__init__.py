"""Verdicts on an experiment, from the times of requests and metrics."""
