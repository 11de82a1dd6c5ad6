"""The commands below `tritonwatch chaos`."""
