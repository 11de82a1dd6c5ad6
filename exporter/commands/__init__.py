"""Sub-commands of `tritonwatch`, and the generated reference pages."""
