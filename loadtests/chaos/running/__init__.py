"""Execution of an experiment, once or repeatedly."""
