"""Energy: sensor readings, their balanced division among models, and their cost."""
