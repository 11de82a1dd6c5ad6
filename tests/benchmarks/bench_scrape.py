"""A whole scrape over HTTP: gathering, rendering, sending."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import figures
from monitoring import free_port
from sidecar_process import Process, Scraper, first_page, launched

if TYPE_CHECKING:
    from collections.abc import Iterator

    from figures import Figure

_GOALS = {2_000: 12.0, 20_000: 120.0}


def http(*, quick: bool = False) -> Iterator[Figure]:
    """Scrapes of 2,000 and 20,000 series from another process."""
    fleet = str(Path(__file__).with_name("fleet_page.py"))
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
