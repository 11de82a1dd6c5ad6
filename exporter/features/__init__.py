"""One folder for each thing that is watched: its settings, its collector or probe, and the rest."""
