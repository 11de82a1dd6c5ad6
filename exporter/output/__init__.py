"""Formats of samples: Prometheus text, OpenMetrics, protobuf and OTLP."""
