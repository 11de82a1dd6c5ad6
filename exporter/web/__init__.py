"""The HTTP server: routes, the status page, /probe, and authentication."""
