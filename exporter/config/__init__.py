"""The configuration file as one frozen model, and the clients and logs built from it.

`kinds` lists every kind that the file can name.
"""
