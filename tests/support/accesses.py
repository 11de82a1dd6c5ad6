"""What a collector or a probe is built with, as a test wants it."""

from __future__ import annotations

import random
import time
from typing import Any

from exporter.access.collector_base import Access
from exporter.access.inventory import InventoryBoard
from exporter.access.mirror_hub import MirrorHub
from exporter.access.own_traffic import OwnTraffic
from exporter.access.span_buffer import SpanBuffer
from exporter.settings import ModelFilter


def access_to(grpc: Any, **given: Any) -> Access:
    """Access by that client, with nothing seen, asked or exposed yet but what is given."""
    parts = {
        "http": None,
        "metrics": None,
        "models": ModelFilter(),
        "board": InventoryBoard(),
        "own": OwnTraffic(run_id="test"),
        "clock": time.monotonic,
        "spans": SpanBuffer(time.time_ns, random.Random(0)),  # noqa: S311 - ids of spans
        "exposed": tuple,
        "mirror": MirrorHub(),
    }
    return Access(grpc=grpc, **{**parts, **given})
