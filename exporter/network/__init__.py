"""Listening sockets, limits on connections, addresses, and gRPC's core."""
