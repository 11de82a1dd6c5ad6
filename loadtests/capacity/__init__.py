"""The capacity of a server at its objective, with a reliable interval."""
