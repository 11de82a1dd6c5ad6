"""A tap alone: `python tap_process.py SAMPLES_PER_SECOND`, then one line of JSON a line.

The first line out says where it listens; for every line on standard input another one
comes back: what was counted so far, and the values that a reader got.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace

from exporter.access.collector_base import Access
from exporter.access.inventory import Inventory, InventoryBoard
from exporter.access.mirror_hub import Mirrored, MirrorHub
from exporter.network.admission import Admission
from exporter.taps.mirroring.mirror_collector import MirrorSettings
from exporter.taps.tap import Tap
from exporter.triton.grpc import GrpcClient
from exporter.triton.protocol_types import ModelSpec

MODEL = "bench"


class _Reader:
    def __init__(self) -> None:
        self.values = 0

    def take(self, batch: list[Mirrored]) -> None:
        self.values += sum(
            tensor.size for request in batch for tensor in request.inputs.values()
        )


async def _serve(samples_per_second: float) -> None:
    board, hub, reader = InventoryBoard(), MirrorHub(), _Reader()
    board.publish(Inventory(models={(MODEL, "1"): ModelSpec(MODEL, "1", (), ())}))
    hub.subscribe(lambda _: True, reader.take)
    detached = Access.detached(GrpcClient("127.0.0.1:1"))
    access = replace(detached, board=board, mirror=hub)
    collector = MirrorSettings(
        samples_per_second=samples_per_second,
        max_samples_per_second=samples_per_second,
    ).build(access)
    tap = Tap(collector.routes, Admission().tap)
    tap.follow("127.0.0.1", 0)
    print(json.dumps({"address": tap.address}), flush=True)
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        counted = {s.labels[1]: s.value for s in tap.samples()}
        print(json.dumps({**counted, "values": reader.values}), flush=True)
    await tap.stop()


if __name__ == "__main__":
    asyncio.run(_serve(float(sys.argv[1])))
