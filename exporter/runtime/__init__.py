"""Runs collectors and probes on schedule, each under a deadline."""
