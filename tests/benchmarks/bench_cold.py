"""From the command to the first page."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import figures
from processes import MODELS, first_page, require_triton, sidecar, triton_settings

from exporter.triton.embedded import EmbeddedTriton

if TYPE_CHECKING:
    from collections.abc import Iterator

    from figures import Figure

_GOAL = 1.5


def serve(*, quick: bool = False) -> Iterator[Figure]:
    """`tritonwatch serve` beside a real Triton with five models, started anew each time."""
    require_triton()
    first: list[float] = []
    filled: list[float] = []
    cpu: list[float] = []
    with EmbeddedTriton(MODELS) as triton:
        for _ in range(3 if quick else 11):
            started = time.perf_counter()
            with sidecar({"target": triton_settings(triton)}) as (process, port):
                first_page(port)
                first.append(time.perf_counter() - started)
                cpu.append(process.cpu_seconds())
                first_page(port, holding=b"triton_probe_success{")
                filled.append(time.perf_counter() - started)
    yield figures.at_most(
        "cold_first_page",
        unit="seconds",
        goal=_GOAL,
        measured="from starting `tritonwatch serve` to the first 200 of /metrics, asked "
        "for every 2 ms; files cached by the kernel, median of n starts",
        n=len(first),
        **figures.median(first),
        cpu_seconds=figures.median(cpu)["value"],
    )
    yield figures.at_most(
        "cold_first_probe",
        unit="seconds",
        goal=None,
        measured="the same, to the first page with the verdict of a probe",
        n=len(filled),
        **figures.median(filled),
    )
