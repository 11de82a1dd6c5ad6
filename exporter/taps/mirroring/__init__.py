"""Mirrored production requests: bodies of proxies and loggers to arrays at the hub."""
