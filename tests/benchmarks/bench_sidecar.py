"""What the sidecar costs: its core, its memory, and the server's throughput."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import figures
from sidecar_process import (
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
    from collections.abc import Iterable, Iterator, Sequence

    from figures import Figure

_CPU_GOAL, _MEMORY_GOAL, _THROUGHPUT_GOAL = 3.0, 90.0, 1.0
_SCRAPE_SECONDS = 5.0
_WARM_UP_SECONDS = 10.0
_USERS = 8
# A window is one period of every collector and probe of the default configuration.
_WINDOW_SECONDS = 5.0
_SETTLE_SECONDS = 0.5
_OTHERS_LIMIT = 0.1
_LEAST_PAIRS = 10
# Its own threads' wake-ups, seen in /proc at default settings.
_WAKES_PER_SECOND = 25
_WAKES_ONLY = f"""
import asyncio

async def wake():
    while True:
        await asyncio.sleep({1 / _WAKES_PER_SECOND})

asyncio.run(wake())
"""


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
            with launched(sys.executable, "-c", _WAKES_ONLY) as wakes:
                memory = _scraped(port, seconds, process)
                waking = wakes.cpu_seconds() / seconds
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
        measured=f"user and system time of the process over {seconds:g} s; {setup}; the"
        " peer does nothing but wake as often: what this machine charges for waking",
        n=1,
        peer=waking * 100,
        peer_name=f"a Python process woken {_WAKES_PER_SECOND} times a second",
        ratio=cpu / waking,
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
    load = str(Path(__file__).with_name("closed_loop_load.py"))
    pairs: list[tuple[_Window, _Window]] = []
    with (
        EmbeddedTriton(MODELS) as triton,
        contextlib.closing(GrpcClient(triton.grpc)) as client,
        sidecar({"target": triton_settings(triton)}) as (process, port),
        launched(sys.executable, load, triton.grpc, MODEL, str(_USERS)) as users,
    ):
        first_page(port, holding=b"triton_probe_success{")
        time.sleep(3)
        server = [Process(pid) for pid in (triton.pid, *triton.stub_pids())]
        ours = [process, users, *server]
        for number in range(4 if quick else 60):
            # on-off, off-on, …: a machine that drifts favours neither.
            turns = (True, False) if number % 2 == 0 else (False, True)
            windows: dict[bool, _Window] = {}
            for running in turns:
                (process.resume if running else process.pause)()
                time.sleep(_SETTLE_SECONDS)
                windows[running] = _window(client, ours)
            pairs.append((windows[True], windows[False]))
    return _change(pairs)


@dataclass(frozen=True, slots=True)
class _Window:
    """Inferences a second by Triton's own count, and the cores others kept busy."""

    rate: float
    others: float


def _change(pairs: Sequence[tuple[_Window, _Window]]) -> Figure:
    quiet = [p for p in pairs if max(p[0].others, p[1].others) <= _OTHERS_LIMIT]
    enough = len(quiet) >= _LEAST_PAIRS
    on, off = zip(*(quiet if enough else pairs), strict=True)
    ratio = figures.median_ratio([w.rate for w in on], [w.rate for w in off])
    figure = figures.at_most(
        "sidecar_throughput_change",
        abs(ratio["value"] - 1) * 100,
        "percent",
        _THROUGHPUT_GOAL,
        measured=f"change of the inferences a second of {MODEL} under {_USERS} users in "
        "a closed loop when the sidecar runs instead of being stopped by SIGSTOP: ratio "
        f"of {_WINDOW_SECONDS:g} s windows side by side, median of n pairs; load, server "
        "and sidecar share the machine; pairs in which other processes took more than "
        f"{_OTHERS_LIMIT:g} of a core are left out where {_LEAST_PAIRS} others remain",
        n=len(on),
        seed=figures.SEED,
        ratio=ratio["value"],
        ci_low=(ratio["ci_low"] - 1) * 100,
        ci_high=(ratio["ci_high"] - 1) * 100,
        peer=figures.median([w.rate for w in off])["value"],
        peer_name="inferences a second without the sidecar",
        pairs_left_out=len(pairs) - len(on),
        cores_taken_by_others=figures.median([w.others for w in (*on, *off)])["value"],
    )
    if not enough or figure["ci_high"] - figure["ci_low"] > 2 * _THROUGHPUT_GOAL:
        # Disturbed, or coarser than the goal: not enough data, neither met nor missed.
        figure["ok"] = None
    return figure


def _window(client: GrpcClient, ours: Sequence[Process]) -> _Window:
    started, before = time.perf_counter(), _inferences(client)
    busy = _busy_seconds() - _cpu_seconds(ours)
    time.sleep(_WINDOW_SECONDS)
    busy = _busy_seconds() - _cpu_seconds(ours) - busy
    seconds, after = time.perf_counter() - started, _inferences(client)
    return _Window((after - before) / seconds, max(0.0, busy / seconds))


def _busy_seconds() -> float:
    """Time that all cores have not been idle, stolen time included."""
    user, nice, system, _idle, _wait, *rest = (
        int(field)
        for field in Path("/proc/stat").read_text("ascii").split("\n")[0].split()[1:]
    )
    return (user + nice + system + sum(rest[:3])) / os.sysconf("SC_CLK_TCK")


def _inferences(client: GrpcClient) -> int:
    statistics = client.statistics(timeout_seconds=5)
    return next(entry.inference_count for entry in statistics if entry.name == MODEL)
