"""What a collector or a probe is built with, as a test wants it."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from typing import Any

from exporter.access.collector_base import Access
from exporter.access.inventory import Inventory, InventoryBoard
from exporter.access.own_traffic import OwnTraffic
from exporter.access.span_buffer import SpanBuffer


def access_to(grpc: Any, **given: Any) -> Access:
    """Access by that client, with nothing seen, asked or exposed yet but what is given."""
    spans = SpanBuffer(time.time_ns, random.Random(0))  # noqa: S311 - ids of spans
    known = {"own": OwnTraffic(run_id="test"), "spans": spans, **given}
    return replace(Access.detached(grpc), **known)


def board_of(grpc: Any, *names: str) -> InventoryBoard:
    """A board with version 1 of these models of a server that is up, of all without names."""
    listed = [entry.name for entry in grpc.repository_index(timeout_seconds=10)]
    models = {
        (name, "1"): grpc.model_spec(name, "1", timeout_seconds=10)
        for name in names or listed
    }
    board = InventoryBoard()
    board.publish(Inventory(up=True, ready=True, models=models))
    return board
