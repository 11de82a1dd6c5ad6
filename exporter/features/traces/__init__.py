"""Triton's traces of production requests, from OTLP or files, in one histogram.

    trace files   trace_files (which bytes)     ─> trace_records (bytes to traces) ┐
    OTLP/HTTP     trace_receiver ─> otlp_traces ─> trace_spans (joined)            ┴─> trace_sink

`traced_request` is one trace.
"""
