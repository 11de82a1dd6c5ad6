"""The base classes of collectors and probes, and the state they share.

`collector_base.Access` holds all of it: clients, the inventory of models, the ledger of
our own requests, and the boards by which one part passes figures to another.
"""
