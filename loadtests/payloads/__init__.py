"""Bodies of requests: made from a model's signature, or read from a file of data."""
