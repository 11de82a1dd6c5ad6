"""Input and output data compared with a reference. Only modules here import `drift`."""
