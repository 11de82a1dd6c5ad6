"""Request bodies, generated from a model's signature or read from a data file."""
