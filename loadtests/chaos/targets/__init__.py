"""Targets of experiments, and what runs beside them."""
