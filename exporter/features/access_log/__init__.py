"""Request outcomes as clients see them, from the access logs of proxies."""
