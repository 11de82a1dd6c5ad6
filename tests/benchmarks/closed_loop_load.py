"""Closed-loop load on one model, as a program: `python closed_loop_load.py GRPC MODEL USERS`.

Serialised requests through asyncio, the least Python can spend on a request; Triton's
own statistics count what comes of it. Runs until it is ended.
"""

from __future__ import annotations

import asyncio
import sys

import grpc
import numpy as np
from tritonclient.grpc import service_pb2 as pb


def _request(model: str) -> bytes:
    pixels = np.zeros((1, 64), np.float32)
    message = pb.ModelInferRequest(model_name=model)
    message.inputs.add(name="pixels", datatype="FP32", shape=pixels.shape)
    message.raw_input_contents.append(pixels.tobytes())
    return bytes(message.SerializeToString())


async def _users(address: str, model: str, users: int) -> None:
    body = _request(model)
    async with grpc.aio.insecure_channel(address) as channel:
        infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")

        async def user() -> None:
            while True:
                await infer(body)

        await asyncio.gather(*(user() for _ in range(users)))


if __name__ == "__main__":
    asyncio.run(_users(sys.argv[1], sys.argv[2], int(sys.argv[3])))
