"""Clients of Triton, and a server of our own."""
