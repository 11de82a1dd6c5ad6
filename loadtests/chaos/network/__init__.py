"""Network effects, and the mechanisms that make them."""
