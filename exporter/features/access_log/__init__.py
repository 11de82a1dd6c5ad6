"""How requests ended for their clients, from the access logs of proxies."""
