"""Energy under load: the curve from full load to idle, and comparisons of two models."""
