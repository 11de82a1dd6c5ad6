"""Energy: what reading eight GPUs costs.

The boards are scripted below NVIDIA's own Python binding (tests/support/fake_nvml.py),
so ctypes, the binding and our code are timed; a driver's own time is not.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import fake_nvml
import figures
import numpy as np
from accesses import access_to
from clocks import Clock

from exporter.access.work_board import Look, ModelWork, WorkBoard
from exporter.features.energy.energy_ledger import Ledger
from exporter.features.energy.energy_settings import (
    CostSettings,
    PowerSettings,
    energy_settings,
)
from exporter.features.energy.sources.nvml import NvmlSettings
from exporter.features.energy.sources.nvml_reader import NvmlPower
from exporter.features.energy.sources.power_source import Surroundings
from exporter.triton.grpc import GrpcClient

if TYPE_CHECKING:
    from figures import Figure


_GPUS: Final = 8
_READ_GOAL_MS: Final = 2.0
_CORE_GOAL_PERCENT: Final = 0.5
_MODELS: Final = tuple((f"model-{number}", "1") for number in range(10))


def _boards(folder: Path) -> fake_nvml.NvmlScript:
    figures.require(
        found=fake_nvml.compiler() is not None,
        what="C compiler",
        how="apt-get install gcc libc6-dev",
    )
    script = fake_nvml.NvmlScript(
        folder / "script", {n: fake_nvml.board(n) for n in range(_GPUS)}
    )
    fake_nvml.load(fake_nvml.build(folder), script.path)
    return script


def read_eight_gpus(*, quick: bool = False) -> Figure:
    """The full set of eight boards, once."""
    with tempfile.TemporaryDirectory() as name:
        _boards(Path(name))
        clock = Clock()
        source = NvmlPower.opened(
            NvmlSettings(), Surroundings(clock, time.time, None, WorkBoard())
        )
        if source is None:
            raise RuntimeError("the scripted boards are not seen")
        milliseconds = []
        for _ in range(50 if quick else 500):
            clock.now += 1
            started = time.thread_time()
            readings = source.read()
            milliseconds.append((time.thread_time() - started) * 1e3)
            if len(readings) != _GPUS or any(r.faults for r in readings):
                raise RuntimeError(f"found {readings}")
        source.close()
    return figures.at_most(
        "energy_read_8_gpus",
        unit="milliseconds",
        goal=_READ_GOAL_MS,
        n=len(milliseconds),
        measured="CPU time of one thread to read energy, power, clocks, utilisation, "
        "memory, temperature, throttling and XIDs of 8 scripted boards through "
        "nvidia-ml-py (the driver's own time is not in it); median of n cycles",
        **figures.median(milliseconds),
        versions=figures.versions("nvidia-ml-py"),
    )


def collect_every_second(*, quick: bool = False) -> Figure:
    """The whole collector at 1 s: 8 boards, 10 models, a full sliding window."""
    with tempfile.TemporaryDirectory() as name:
        _boards(Path(name))
        clock, work = Clock(), WorkBoard()
        access = access_to(GrpcClient("127.0.0.1:1"), clock=clock, work=work)
        settings = energy_settings(
            PowerSettings(),
            CostSettings(gpu_hour_price=2.0, electricity_price_per_kwh=0.3),
        )
        ledger = Ledger(settings, access)
        source = NvmlPower.opened(
            NvmlSettings(), Surroundings(clock, time.time, None, work)
        )
        if source is None:
            raise RuntimeError("the scripted boards are not seen")
        warm, cycles = (60, 60) if quick else (400, 600)
        milliseconds = []
        for number in range(warm + cycles):
            clock.now += 1
            if number % 5 == 0:
                work.publish(_look(clock.now, number))
            started = time.thread_time()
            ledger.advance([source])
            if number >= warm:
                milliseconds.append((time.thread_time() - started) * 1e3)
        source.close()
    percent = float(np.mean(milliseconds)) / 10
    draws = np.random.default_rng(figures.SEED).choice(
        milliseconds, (1000, len(milliseconds))
    )
    low, high = np.percentile(draws.mean(axis=1) / 10, (2.5, 97.5))
    return figures.at_most(
        "energy_collector_core_percent",
        percent,
        "percent",
        _CORE_GOAL_PERCENT,
        n=len(milliseconds),
        ci_low=float(low),
        ci_high=float(high),
        seed=figures.SEED,
        measured="CPU time of the energy collector at an interval of 1 s (8 scripted "
        "boards, 10 models, windows of 5 s, averages over 300 s), as a share of one core; "
        "mean of n cycles, windows that close among them",
    )


def _look(at: float, number: int) -> Look:
    return Look(
        at,
        {
            key: ModelWork(0.1 * number * (place + 1), 0.09 * number, 100 * number)
            for place, key in enumerate(_MODELS)
        },
    )
