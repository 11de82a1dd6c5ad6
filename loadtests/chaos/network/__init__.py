"""What can be wrong with a wire, and the ways to make it so."""
