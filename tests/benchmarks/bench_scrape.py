"""A whole scrape over HTTP: gathering, rendering, sending; and with Triton frozen."""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import figures
from fake_triton import FakeTriton, Hung, many
from monitoring import free_port
from processes import (
    MODELS,
    Process,
    Scraper,
    first_page,
    launched,
    require_triton,
    sidecar,
    triton_settings,
)

from exporter.triton.embedded import EmbeddedTriton

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from figures import Figure

_GOALS = {2_000: 12.0, 20_000: 120.0}
_FROZEN_GOAL = 1.2
_FREEZE_SECONDS = 1.0  # from 2 s on Triton 2.51's Python backend aborts the server
_SCRAPES = 40
_PERIOD_SECONDS = 0.02


def http(*, quick: bool = False) -> Iterator[Figure]:
    """Scrapes of 2,000 and 20,000 series from another process."""
    fleet = str(Path(__file__).with_name("fleet.py"))
    for series, goal in _GOALS.items():
        port = free_port()
        with launched(sys.executable, fleet, str(port), str(series)) as server:
            page = first_page(port)
            count = sum(not ln.startswith(b"#") for ln in page.splitlines())
            wall, cpu = _scrapes(server, port, repeats=10 if quick else 60)
        yield figures.at_most(
            f"scrape_http_{series}",
            unit="milliseconds",
            goal=goal,
            measured=f"request to last byte over loopback, OpenMetrics, {count} series "
            f"gathered from the sidecar's own meters at each scrape; median of n",
            n=len(wall),
            **figures.median(wall),
            cpu_milliseconds=cpu,
        )


def _scrapes(server: Process, port: int, repeats: int) -> tuple[list[float], float]:
    """Milliseconds of each scrape, and the server's CPU milliseconds a scrape."""
    with contextlib.closing(Scraper(port)) as scraper:
        for _ in range(3):
            scraper.scrape()
        before = server.cpu_seconds()
        wall = [scraper.scrape()[0] * 1e3 for _ in range(repeats)]
        return wall, (server.cpu_seconds() - before) * 1e3 / repeats


def triton_frozen(*, quick: bool = False) -> Figure:
    """Scrapes while a real Triton is stopped by SIGSTOP, beside the moment before."""
    require_triton()
    with EmbeddedTriton(MODELS) as triton:
        config = {"target": triton_settings(triton)}
        return _frozen(
            "scrape_triton_frozen",
            config,
            freeze=triton.freeze,
            thaw=triton.thaw,
            rounds=3 if quick else 15,
            what="a real Triton stopped by SIGSTOP for 1 s at a time",
        )


def triton_hung(*, quick: bool = False) -> Figure:
    """Scrapes while every call of a scripted Triton with 20 models hangs."""
    with FakeTriton(many(20)) as fake:
        target = {"grpc": fake.grpc, "http": fake.http, "metrics": fake.metrics}
        return _frozen(
            "scrape_triton_hung",
            {"target": target},
            freeze=lambda: fake.on("any").reply(Hung()),
            thaw=fake.behave,
            rounds=3 if quick else 15,
            what="a scripted Triton of 20 models that answers no call for 1 s at a time",
        )


def _frozen(
    name: str,
    config: dict[str, object],
    *,
    freeze: Callable[[], object],
    thaw: Callable[[], object],
    rounds: int,
    what: str,
) -> Figure:
    before: list[float] = []
    during: list[float] = []
    with sidecar(config) as (_, port):
        first_page(port, holding=b"triton_probe_success")
        time.sleep(6)  # every collector and probe has run
        with contextlib.closing(Scraper(port)) as scraper:
            for _ in range(rounds):
                before.append(_paced(scraper))
                freeze()
                try:
                    during.append(_paced(scraper))
                finally:
                    thaw()
                time.sleep(1.5)
    return figures.at_most(
        name,
        unit="ratio",
        goal=_FROZEN_GOAL,
        measured=f"median scrape with {what}, over the median just before; median of n "
        f"pairs of {_SCRAPES} scrapes each",
        n=rounds,
        seed=figures.SEED,
        peer=figures.median(before)["value"],
        peer_name="milliseconds of a scrape before",
        **figures.median_ratio(during, before),
    )


def _paced(scraper: Scraper) -> float:
    """Median milliseconds of scrapes at a fixed pace, within the time of a freeze."""
    due = time.monotonic()
    end = due + _FREEZE_SECONDS
    seconds: list[float] = []
    while len(seconds) < _SCRAPES and time.monotonic() < end:
        seconds.append(scraper.scrape()[0])
        due += _PERIOD_SECONDS
        time.sleep(max(0.0, due - time.monotonic()))
    return figures.median(seconds)["value"] * 1e3
