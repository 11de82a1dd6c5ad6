"""The latency histogram: buckets, quantiles, state, and PromQL queries."""
