"""Load and chaos runs that report to the tap, and the capacities they found."""
