"""How much a server takes at its objective, with an interval that can be trusted."""
