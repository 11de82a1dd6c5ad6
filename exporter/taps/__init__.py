"""What other programs send: listeners, routes, and parsers for data of unknown origin."""
