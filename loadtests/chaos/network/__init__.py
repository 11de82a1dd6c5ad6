"""The fault proxy: a TCP proxy whose wire can be made bad."""
