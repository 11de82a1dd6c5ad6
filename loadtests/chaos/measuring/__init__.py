"""From the times of requests and metrics to verdicts on an experiment."""
