"""Energy under load: the curve from full load to idle, and pairs of models compared."""
