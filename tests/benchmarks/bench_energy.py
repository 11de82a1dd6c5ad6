"""Energy: what reading eight GPUs costs, and how far the books are from a scripted truth.

The boards are scripted below NVIDIA's own Python binding (tests/support/fake_nvml.py),
so ctypes, the binding and our code are timed; a driver's own time is not.
"""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import fake_nvml
import figures
import numpy as np

from exporter.collectors.base import Access
from exporter.energy.accounts import Books
from exporter.energy.ledger import Ledger
from exporter.energy.meter import MICRO
from exporter.energy.placement import Placement
from exporter.energy.readings import Device, Reading
from exporter.energy.settings import CostSettings, PowerSettings, energy_settings
from exporter.energy.sources.base import Surroundings
from exporter.energy.sources.nvml import NvmlSettings
from exporter.energy.sources.nvml_reader import NvmlPower
from exporter.inventory import InventoryBoard
from exporter.mirror import MirrorHub
from exporter.own_traffic import OwnTraffic
from exporter.settings import ModelFilter
from exporter.spans import SpanBuffer
from exporter.triton.grpc import GrpcClient
from exporter.work import Look, ModelWork, WorkBoard

if TYPE_CHECKING:
    from collections.abc import Iterator

    from figures import Figure

    from exporter.inventory import ModelKey

_GPUS: Final = 8
_READ_GOAL_MS: Final = 2.0
_CORE_GOAL_PERCENT: Final = 0.5
_BALANCE_GOAL_PERCENT: Final = 0.1
_ATTRIBUTION_GOAL_PERCENT: Final = 5.0
_MODELS: Final = tuple((f"model-{number}", "1") for number in range(10))


class _Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


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
        clock = _Clock()
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
        clock, work = _Clock(), WorkBoard()
        access = _access(clock, work)
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


def _access(clock: _Clock, work: WorkBoard) -> Access:
    return Access(
        grpc=GrpcClient("127.0.0.1:1"),
        http=None,
        metrics=None,
        models=ModelFilter(),
        board=InventoryBoard(),
        own=OwnTraffic(run_id="bench"),
        clock=clock,
        spans=SpanBuffer(time.time_ns, random.Random(0)),  # noqa: S311 - ids of spans
        exposed=tuple,
        mirror=MirrorHub(),
        work=work,
    )


def _look(at: float, number: int) -> Look:
    return Look(
        at,
        {
            key: ModelWork(0.1 * number * (place + 1), 0.09 * number, 100 * number)
            for place, key in enumerate(_MODELS)
        },
    )


def books(*, quick: bool = False) -> Iterator[Figure]:
    """A board of known power for an hour: alternating and overlapping models, and a
    counter that starts over, against what was counted and attributed."""
    worst, resets, minutes, found = _scripted(600 if quick else 3600)
    yield figures.at_most(
        "energy_balance_error_percent",
        100 * worst,
        "percent",
        _BALANCE_GOAL_PERCENT,
        n=minutes,
        seed=figures.SEED,
        measured="largest difference, over every minute there is, between what the books hold "
        "(models + idle + unattributed) and the scripted board's true energy, relative "
        f"to the latter; {resets} counter resets in the middle of intervals, bridged by "
        "the average power over the second",
    )
    yield figures.at_most(
        "energy_balance_error_percent_without_average_power",
        100 * _scripted(600 if quick else 3600, averaged=False)[0],
        "percent",
        None,
        n=minutes,
        seed=figures.SEED,
        measured="the same of a board that tells its power at an instant only, which "
        "bridges a reset by its two ends",
    )
    for key, joules in found.items():
        error = abs(joules[1] / joules[0] - 1)
        yield figures.at_most(
            f"energy_attribution_error_percent_{key[0]}",
            100 * error,
            "percent",
            _ATTRIBUTION_GOAL_PERCENT,
            n=1,
            seed=figures.SEED,
            measured="difference between the energy attributed to a model of "
            f"{joules[2]:g} W above idle and its true energy over the whole script: two "
            "models, alternating and overlapping, beginning with no knowledge",
        )


def _scripted(
    seconds: int, *, averaged: bool = True
) -> tuple[float, int, int, dict[ModelKey, tuple[float, float, float]]]:
    """Worst relative error of a minute, resets, number of minutes, and by model
    true and attributed joules and watts. Not `averaged`, the board tells its power at an
    instant only, as those before Ampere do."""
    rng = np.random.default_rng(figures.SEED)
    device = Device("gpu", "nvml", "GPU-1", max_watts=700.0)
    watts: dict[ModelKey, float] = {("a", "1"): 320.0, ("b", "1"): 130.0}
    account = Books(5.0)
    placement = Placement(frozenset({"GPU-1"}))
    counter, total, resets = 1e6, 0.0, 0
    busy = dict.fromkeys(watts, 0.0)
    true = dict.fromkeys(watts, 0.0)
    ends: list[float] = []
    held: list[float] = []
    account.add(Reading(device, 0.0, round(counter * MICRO), average_watts=60.0))
    account.settle(Look(0.0, _work(busy)), placement, 0.0)
    for second in range(1, seconds + 1):
        power = 60.0
        for key, ratio in _mix(second, rng).items():
            busy[key] += ratio
            true[key] += ratio * watts[key]
            power += ratio * watts[key]
        total += power
        counter += power
        if rng.random() < 1 / 200:
            # In the middle of the interval: what was counted before is gone.
            counter, resets = power * float(rng.random()), resets + 1
        shown = round(counter * 1000) * 1000
        account.add(
            Reading(
                device,
                float(second),
                shown,
                power_watts=power,
                average_watts=power if averaged else None,
            )
        )
        if second % 5 == 0:
            account.settle(Look(float(second), _work(busy)), placement, second)
            ends.append(total)
            held.append(_held(account))
    # Every minute there is, from one window's end to another's.
    minutes = np.subtract(ends[12:], ends[:-12])
    errors = np.abs(np.subtract(held[12:], held[:-12]) - minutes) / minutes
    (book,) = account.devices.values()
    given = {
        key: sum(e for (k, _), e in book.totals.models.items() if k == key) / MICRO
        for key in watts
    }
    by_model = {key: (true[key], given[key], watts[key]) for key in watts}
    return float(errors.max()), resets, len(minutes), by_model


def _mix(second: int, rng: np.random.Generator) -> dict[ModelKey, float]:
    a, b = ("a", "1"), ("b", "1")
    match second // 30 % 5:
        case 0:
            return {}
        case 1:
            return {a: 0.9}
        case 2:
            return {b: 0.8}
        case 3:
            return {a: float(rng.uniform(0.2, 0.6)), b: float(rng.uniform(0.2, 0.6))}
        case _:
            return {a: 0.1, b: float(rng.uniform(0.3, 0.5))}


def _work(busy: dict[ModelKey, float]) -> dict[ModelKey, ModelWork]:
    return {key: ModelWork(s, s, int(100 * s)) for key, s in busy.items()}


def _held(account: Books) -> float:
    """Joules in the books: the parts, not the board, which they must add up to."""
    return (
        sum(
            part
            for book in account.devices.values()
            for part in (
                book.totals.idle,
                *book.totals.unattributed.values(),
                *book.totals.models.values(),
            )
        )
        / MICRO
    )
