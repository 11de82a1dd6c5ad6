"""The fault proxy: a TCP proxy that injects network faults."""
