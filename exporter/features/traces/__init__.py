"""Triton's traces of production requests: read by two roads, kept in one histogram.

    trace files   trace_files (which bytes)     ─> trace_records (bytes to traces) ┐
    OTLP/HTTP     trace_receiver ─> otlp_traces ─> trace_spans (joined)            ┴─> trace_sink

`traced_request` is one trace.
"""
