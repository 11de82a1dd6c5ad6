"""Requests that tritonwatch sends itself: built, checked and accounted for."""
