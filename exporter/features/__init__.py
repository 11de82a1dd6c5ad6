"""One folder for each feature: its settings, its collector or probe, and their parts."""
