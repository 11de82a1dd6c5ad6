"""Triton's traces of production requests: read by two roads, kept in one histogram.

    trace files   files.py (which bytes)  ─> records.py (bytes to traces) ┐
    OTLP/HTTP     tap (exporter/tap.py)   ─> otlp.py (spans) ─> spans.py  ┴─> sink.py

`model.py` says what one trace is, `control.py` sets Triton's sampling rates.
"""
