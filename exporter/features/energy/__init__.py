"""Energy: read from sensors, divided among models so that it balances, and priced."""
