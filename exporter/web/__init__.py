"""What people and Prometheus open: routes, the status page, /probe, and authentication."""
