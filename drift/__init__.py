"""Statistics of change between a reference and what arrives: numpy and scipy, no I/O, no clock."""
