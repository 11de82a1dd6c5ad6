"""Load that reports: `python timed_load.py GRPC MODEL USERS [REQUESTS_PER_SECOND]`.

A closed loop, unless a rate is given that all users together keep to.

For every line on standard input one JSON line comes back: what was answered since the
line before. Requests are serialised once, for the models of tests/data and deploy that
take 8 or 64 floats.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import grpc
import numpy as np
from tritonclient.grpc import service_pb2 as pb


def _request(model: str, tensor: str, width: int) -> bytes:
    values = np.zeros((1, width), np.float32)
    message = pb.ModelInferRequest(model_name=model)
    message.inputs.add(name=tensor, datatype="FP32", shape=values.shape)
    message.raw_input_contents.append(values.tobytes())
    return bytes(message.SerializeToString())


def _told(latencies: list[float], seconds: float) -> str:
    found = np.array(latencies) if latencies else np.full(1, np.nan)
    return json.dumps(
        {
            "requests": len(latencies),
            "requests_per_second": len(latencies) / seconds,
            "p50_seconds": float(np.quantile(found, 0.5)),
            "p99_seconds": float(np.quantile(found, 0.99)),
        }
    )


async def _run(address: str, model: str, users: int, rate: float) -> None:
    body = _request(model, *(("pixels", 64) if "digits" in model else ("x", 8)))
    latencies: list[float] = []
    async with grpc.aio.insecure_channel(address) as channel:
        infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")

        async def user() -> None:
            due = time.perf_counter()
            while True:
                if rate:
                    due = max(due + users / rate, time.perf_counter())
                    await asyncio.sleep(due - time.perf_counter())
                started = time.perf_counter()
                await infer(body)
                latencies.append(time.perf_counter() - started)

        running = asyncio.gather(*(user() for _ in range(users)))
        loop = asyncio.get_running_loop()
        since = time.perf_counter()
        while await loop.run_in_executor(None, sys.stdin.readline):
            if running.done():
                running.result()
            now = time.perf_counter()
            print(_told(latencies, now - since), flush=True)
            latencies.clear()
            since = now
        running.cancel()


if __name__ == "__main__":
    requests_per_second = float((sys.argv[4:] or ["0"])[0])
    asyncio.run(_run(sys.argv[1], sys.argv[2], int(sys.argv[3]), requests_per_second))
