"""The configuration file as one frozen model, and what is made directly from it.

`collector_union` and `probe_union` list every kind that the file can name.
"""
