"""What a collector or a probe is built with, as a test wants it."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from typing import Any

from exporter.access.collector_base import Access
from exporter.access.own_traffic import OwnTraffic
from exporter.access.span_buffer import SpanBuffer


def access_to(grpc: Any, **given: Any) -> Access:
    """Access by that client, with nothing seen, asked or exposed yet but what is given."""
    spans = SpanBuffer(time.time_ns, random.Random(0))  # noqa: S311 - ids of spans
    known = {"own": OwnTraffic(run_id="test"), "spans": spans, **given}
    return replace(Access.detached(grpc), **known)
