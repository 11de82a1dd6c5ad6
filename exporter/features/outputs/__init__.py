"""Production answers as the taps receive them, and estimated accuracy without labels."""
