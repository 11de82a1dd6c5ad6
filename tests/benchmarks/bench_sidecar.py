"""What the sidecar costs: its core, its memory, and the server's throughput."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import figures
from processes import (
    MODEL,
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
from exporter.triton.grpc import GrpcClient

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from figures import Figure

_CPU_GOAL, _MEMORY_GOAL, _THROUGHPUT_GOAL = 3.0, 90.0, 1.0
_SCRAPE_SECONDS = 5.0
_WARM_UP_SECONDS = 10.0
_USERS = 8
# A window is one period of every collector and probe of the default configuration.
_WINDOW_SECONDS = 5.0
_SETTLE_SECONDS = 0.5


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
        _THROUGHPUT_GOAL,
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


def throughput(*, quick: bool = False) -> Figure:
    """Requests a second of the loaded server, with the sidecar and with it stopped."""
    require_triton()
    load = str(Path(__file__).with_name("load.py"))
    on: list[float] = []
    off: list[float] = []
    with (
        EmbeddedTriton(MODELS) as triton,
        contextlib.closing(GrpcClient(triton.grpc)) as client,
        sidecar({"target": triton_settings(triton)}) as (process, port),
        launched(sys.executable, load, triton.grpc, MODEL, str(_USERS)),
    ):
        first_page(port, holding=b"triton_probe_success{")
        time.sleep(3)
        for number in range(4 if quick else 60):
            # on-off, off-on, …: a machine that drifts favours neither.
            turns = (on, off) if number % 2 == 0 else (off, on)
            for kept in turns:
                (process.resume if kept is on else process.pause)()
                time.sleep(_SETTLE_SECONDS)
                kept.append(_rate(client))
    ratio = figures.median_ratio(on, off)
    figure = figures.at_most(
        "sidecar_throughput_change",
        abs(ratio["value"] - 1) * 100,
        "percent",
        _THROUGHPUT_GOAL,
        measured=f"change of the inferences a second of {MODEL} under {_USERS} users in "
        f"a closed loop when the sidecar runs instead of being stopped by SIGSTOP: "
        f"ratio of {_WINDOW_SECONDS:g} s windows side by side, median of n pairs; load, "
        "server and sidecar share the machine",
        n=len(on),
        seed=figures.SEED,
        ratio=ratio["value"],
        ci_low=(ratio["ci_low"] - 1) * 100,
        ci_high=(ratio["ci_high"] - 1) * 100,
        peer=figures.median(off)["value"],
        peer_name="inferences a second without the sidecar",
    )
    if figure["ci_high"] - figure["ci_low"] > 2 * _THROUGHPUT_GOAL:
        # Coarser than the goal: that is not enough data, neither met nor missed.
        figure["ok"] = None
    return figure


def _rate(client: GrpcClient) -> float:
    """Inferences a second of one window, by Triton's own count."""
    started, before = time.perf_counter(), _inferences(client)
    time.sleep(_WINDOW_SECONDS)
    ended, after = time.perf_counter(), _inferences(client)
    return (after - before) / (ended - started)


def _inferences(client: GrpcClient) -> int:
    statistics = client.statistics(timeout_seconds=5)
    return next(entry.inference_count for entry in statistics if entry.name == MODEL)
