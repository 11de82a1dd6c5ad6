"""A mirror collector behind real taps, and a reader of what they take."""

from __future__ import annotations

import contextlib

import pytest
from accesses import access_to
from grpc_tap_clients import Served
from running_taps import MirrorTap, inventory

from exporter.access.inventory import InventoryBoard
from exporter.settings import ModelFilter
from exporter.triton.grpc import GrpcClient


@pytest.fixture(scope="session")
def make_access():
    """Access to a server that holds models of these names, and is never asked."""
    made = []

    def make(*names):
        board = InventoryBoard()
        board.publish(inventory(*names))
        access = access_to(
            GrpcClient("127.0.0.1:1"),
            models=ModelFilter(exclude=("secret_*",)),
            board=board,
        )
        made.append(access)
        return access

    yield make
    for access in made:
        access.grpc.close()


@pytest.fixture
def access(make_access):
    return make_access("m", "other")


def _starting(tap, access):
    with contextlib.ExitStack() as stack:

        def start(**settings):
            served = tap(access, **settings)
            stack.callback(served.close)
            return served

        yield start


@pytest.fixture
def serve(access):
    """Start taps for HTTP with the settings of a mirror collector; they end with the test."""
    yield from _starting(MirrorTap, access)


@pytest.fixture
def serve_grpc(access):
    """As `serve`, for gRPC."""
    yield from _starting(Served, access)
