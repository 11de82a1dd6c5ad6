"""Service level objectives: good and bad events, burn rate, budget, and their rules."""
