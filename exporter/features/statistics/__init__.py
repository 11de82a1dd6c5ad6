"""Production traffic from the statistics API, without our own requests."""
