"""Golden probes: answers compared with labels or recorded answers.

Loaded only where a golden probe is configured.
"""
