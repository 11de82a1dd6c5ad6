"""From samples to Prometheus text, OpenMetrics, protobuf and OTLP."""
