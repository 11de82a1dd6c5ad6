"""Load profiles, capacity search and chaos experiments against a Triton server."""
