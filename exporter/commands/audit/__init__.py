"""Audit of one server: time by phase, untrue metrics, and remedies.

First everything is read into one frozen `Evidence` (gather.py); then every check, a
pure function over it (checks/), says its findings; then text, JSON or HTML.
"""
