"""The one latency histogram: its buckets, quantiles with intervals, state, and PromQL over it."""
