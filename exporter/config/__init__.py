"""The configuration file as one frozen model, and the clients and logs built from it.

`collector_union` and `probe_union` list every kind that the file can name.
"""
