"""Answers compared with held-out data or recorded answers, and checks without either.

Loaded only where a golden probe is configured.
"""
