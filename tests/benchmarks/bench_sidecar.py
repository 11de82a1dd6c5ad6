"""Cost of the sidecar: processor time and memory."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

import figures
from sidecar_process import (
    MODELS,
    Process,
    Scraper,
    first_page,
    require_triton,
    sidecar,
    triton_settings,
)

from exporter.triton.embedded import EmbeddedTriton

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from figures import Figure

_CPU_GOAL, _MEMORY_GOAL, _MACHINE_GOAL = 3.0, 90.0, 1.0
_SCRAPE_SECONDS = 5.0
_WARM_UP_SECONDS = 10.0


def footprint(*, quick: bool = False) -> Iterator[Figure]:
    """CPU and memory beside five models, default settings, scraped every 5 s."""
    require_triton()
    seconds = 15.0 if quick else 90.0
    with EmbeddedTriton(MODELS) as triton:
        server = [Process(pid) for pid in (triton.pid, *triton.stub_pids())]
        started = _cpu_seconds(server)
        time.sleep(seconds / 3)
        alone = (_cpu_seconds(server) - started) / (seconds / 3)
        with sidecar({"target": triton_settings(triton)}) as (process, port):
            first_page(port, holding=b"triton_probe_success{")
            _scraped(port, _WARM_UP_SECONDS)
            before = process.cpu_seconds(), _cpu_seconds(server)
            memory = _scraped(port, seconds, process)
            cpu = (process.cpu_seconds() - before[0]) / seconds
            caused = (_cpu_seconds(server) - before[1]) / seconds - alone
            peak = process.memory_bytes("VmHWM") / 1e6
            scipy = process.maps("/scipy/")
    setup = f"five models, default settings, a scrape every {_SCRAPE_SECONDS:g} s"
    yield figures.at_most(
        "sidecar_cpu",
        cpu * 100,
        "percent of one core",
        _CPU_GOAL,
        measured=f"user and system time of the process over {seconds:g} s; {setup}",
        n=1,
    )
    cores = len(os.sched_getaffinity(0))
    yield figures.at_most(
        "sidecar_share_of_machine",
        (cpu + caused) / cores * 100,
        "percent of all cores",
        _MACHINE_GOAL,
        measured=f"what a server that needs every core cannot have: time of the process "
        f"and time of Triton for answering it, over {seconds:g} s on {cores} cores, what "
        f"Triton needs by itself taken off; {setup}",
        n=1,
        triton_percent_of_one_core=caused * 100,
    )
    yield figures.at_most(
        "sidecar_resident",
        unit="megabytes",
        goal=_MEMORY_GOAL,
        measured=f"VmRSS at each scrape over {seconds:g} s; {setup}; median of n",
        n=len(memory),
        **figures.median(memory),
        peak=peak,
    )
    yield figures.at_most(
        "sidecar_scipy",
        len(scipy),
        "mapped files of scipy",
        0,
        measured="files below a folder scipy in /proc/PID/maps of that process",
        n=1,
    )


def _cpu_seconds(processes: Iterable[Process]) -> float:
    return sum(process.cpu_seconds() for process in processes)


def _scraped(port: int, seconds: float, process: Process | None = None) -> list[float]:
    """Scrape at a steady pace; resident megabytes after each."""
    memory: list[float] = []
    due = time.monotonic()
    end = due + seconds
    with contextlib.closing(Scraper(port)) as scraper:
        while due < end:
            scraper.scrape()
            if process is not None:
                memory.append(process.memory_bytes("VmRSS") / 1e6)
            due += _SCRAPE_SECONDS
            time.sleep(max(0.0, min(due, end) - time.monotonic()))
    return memory
