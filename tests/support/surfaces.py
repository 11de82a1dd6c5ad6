"""The sidecar's HTTP surface on a loopback port, and one request to it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from monitoring import free_port
from prometheus_client.parser import text_string_to_metric_families
from waiting import patience

from exporter.app import Sidecar
from exporter.config.configuration import parse
from exporter.network.listening import bind, make_server
from exporter.web.routes import Surface

if TYPE_CHECKING:
    from fake_triton import FakeTriton

OPENMETRICS = {"accept": "application/openmetrics-text"}
CANARY = "canary-value"
PAGES = [
    "/metrics",
    "/-/healthy",
    "/-/ready",
    "/",
    "/api/v1/status",
    "/api/v1/history",
]


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self):
        return self.body.decode()

    def values(self, name, **labels):
        return [
            sample.value
            for family in text_string_to_metric_families(self.text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]


@dataclass(frozen=True)
class Served:
    """A sidecar behind its surface on a loopback port."""

    port: int
    sidecar: Sidecar
    fake: FakeTriton | None

    async def raw(self, request, source="127.0.0.1"):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, local_addr=(source, 0)
        )
        try:
            writer.write(request)
            await writer.drain()
            async with asyncio.timeout(patience(30)):
                return await reader.read()
        finally:
            writer.close()

    async def ask(self, path, method="GET", body=b"", source="127.0.0.1", **headers):
        lines = [f"{method} {path} HTTP/1.1", "host: x", "connection: close"]
        lines += [
            f"{name.replace('_', '-')}: {value}" for name, value in headers.items()
        ]
        lines += [f"content-length: {len(body)}"] if body else []
        head = "\r\n".join([*lines, "", ""]).encode()
        reply = await self.raw(head + body, source)
        head, _, payload = reply.partition(b"\r\n\r\n")
        status, *fields = head.decode().split("\r\n")
        return Answer(
            int(status.split()[1]),
            {k.lower(): v.strip() for k, _, v in (f.partition(":") for f in fields)},
            payload,
        )

    async def until(self, condition, path="/metrics"):
        deadline = time.monotonic() + patience()
        while not condition(answer := await self.ask(path)):
            assert time.monotonic() < deadline, f"it never came about:\n{answer.text}"
            await asyncio.sleep(0.05)
        return answer


def config_of(target, **settings):
    document = {
        "target": target,
        "listen": {"address": "127.0.0.1", "port": 0, "tap": {"port": 0}},
        "collectors": [
            {"kind": "server", "interval_seconds": 0.2},
            {"kind": "statistics", "interval_seconds": 0.2},
        ],
        "probes": [{"kind": "synthetic", "interval_seconds": 0.5}],
        **settings,
    }
    return parse(json.dumps(document).encode(), "FILE", {})


@contextlib.asynccontextmanager
async def serving(fake=None, *, reload=None, start=True, target=None, **settings):
    """A surface over `fake`, or over nobody at all."""
    if target is None:
        nobody = f"127.0.0.1:{free_port()}"
        target = {"grpc": nobody, "http": nobody, "metrics": None}
        if fake is not None:
            target = {"grpc": fake.grpc, "http": fake.http, "metrics": fake.metrics}
    sidecar = Sidecar(config_of(target, **settings))
    server = make_server(Surface(sidecar, reload), sidecar.admission.web)
    with bind("127.0.0.1", 0) as listener:
        if start:
            sidecar.start()
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield Served(listener.getsockname()[1], sidecar, fake)
        finally:
            server.should_exit = True
            await task
            await sidecar.stop()
