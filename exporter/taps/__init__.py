"""Data from other programs: listeners, routes, and parsers of untrusted input."""
