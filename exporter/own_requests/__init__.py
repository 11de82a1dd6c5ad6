"""Requests that tritonwatch sends on its own: how they are built, checked and counted."""
