"""Load from several processes and machines, with Locust's master and workers.

Each worker has a sender: a process of its own with the asyncio engine in it. Locust's
gevent sends gRPC at half the rate and at two to three times the CPU, and its timers
quantise to a millisecond; what stays in the worker is what Locust is good at: spawning,
heartbeats, events, the table, the web UI.
"""
