"""Outcomes of requests for their clients, from the access logs of proxies."""
