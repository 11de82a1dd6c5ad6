"""Undoes faults even if the process that injected them has ended."""
