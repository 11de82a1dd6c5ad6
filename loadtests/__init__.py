"""Load profiles and capacity search against a Triton server."""
