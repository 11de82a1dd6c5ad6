"""Models that are loaded: how long it takes until they answer, and who suffers."""
