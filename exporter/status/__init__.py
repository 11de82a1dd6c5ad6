"""What the status page says: one state for each model, why, since when, and the hours before."""
