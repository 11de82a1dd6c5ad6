"""Sub-commands of `tritonwatch` that are more than a few lines, and generated pages."""
