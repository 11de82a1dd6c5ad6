"""The real LoadGen's Server scenario on a Triton; runs in an environment of its own.

build/loadgen/bin/python tests/benchmarks/loadgen_server.py GRPC RATE SECONDS < REQUEST

REQUEST is a serialised ModelInferRequest. Prints the seconds of the 99th percentile that
LoadGen's summary tells, and nothing else.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
import threading
from pathlib import Path

import grpc
import mlperf_loadgen as lg

_METHOD = "/inference.GRPCInferenceService/ModelInfer"
_P99 = re.compile(r"^99\.00 percentile latency \(ns\)\s*: (\d+)$", re.MULTILINE)


class Server:
    """The system under test as LoadGen calls it: asks Triton from a thread of its own."""

    def __init__(self, address: str, request: bytes) -> None:
        self._request = request
        self._loop = asyncio.new_event_loop()
        self._asked: set[asyncio.Task[None]] = set()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        opened = asyncio.run_coroutine_threadsafe(self._open(address), self._loop)
        self._infer = opened.result(10)

    def issue(self, samples: list[lg.QuerySample]) -> None:
        """Begin a query."""
        for sample in samples:
            self._loop.call_soon_threadsafe(self._begin, sample.id)

    async def _open(self, address: str) -> grpc.aio.UnaryUnaryMultiCallable:
        channel = grpc.aio.insecure_channel(address)
        await channel.channel_ready()
        return channel.unary_unary(_METHOD)

    def _begin(self, sample: int) -> None:
        task = self._loop.create_task(self._ask(sample))
        self._asked.add(task)
        task.add_done_callback(self._asked.discard)

    async def _ask(self, sample: int) -> None:
        await self._infer(self._request)
        lg.QuerySamplesComplete([lg.QuerySampleResponse(sample, 0, 0)])


def main(address: str, rate: float, seconds: float) -> None:
    """Run it, and print."""
    server = Server(address, sys.stdin.buffer.read())
    settings = lg.TestSettings()
    settings.scenario = lg.TestScenario.Server
    settings.mode = lg.TestMode.PerformanceOnly
    settings.server_target_qps = rate
    settings.server_target_latency_ns = 50_000_000
    settings.min_duration_ms = int(seconds * 1000)
    settings.min_query_count = int(rate)
    with tempfile.TemporaryDirectory() as folder:
        logs, output = lg.LogSettings(), lg.LogOutputSettings()
        output.outdir, output.copy_summary_to_stdout = folder, False
        logs.enable_trace, logs.log_output = False, output
        sut = lg.ConstructSUT(server.issue, lambda: None)
        qsl = lg.ConstructQSL(100, 100, lambda _: None, lambda _: None)
        lg.StartTestWithLogSettings(sut, qsl, settings, logs)
        lg.DestroyQSL(qsl)
        lg.DestroySUT(sut)
        summary = Path(folder, "mlperf_log_summary.txt").read_text("utf-8")
    found = _P99.search(summary)
    if found is None:
        raise SystemExit(f"found no 99th percentile in LoadGen's summary:\n{summary}")
    print(int(found[1]) / 1e9)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), float(sys.argv[3]))
