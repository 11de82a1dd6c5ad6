"""Audit of one server: time by phase, wrong metrics, and remedies.

Everything is read into one frozen `Evidence` first (gather.py). Each row of the tables
`SERVER_CHECKS`, `LISTED_CHECKS` and `MODEL_CHECKS` is one possible finding: a condition on
what was read, a sentence, advice. The findings become text, JSON or HTML.
"""
