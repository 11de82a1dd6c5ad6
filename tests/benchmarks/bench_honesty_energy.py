"""Honesty of energy shares: how often a model's interval holds the watts it takes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import figures
import numpy as np
from power_traces import Served, Trace, busy_seconds, follow, key_of

from exporter.features.energy.energy_meter import MICRO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from figures import Figure

GOAL = 0.93
CLAIM = 0.05
LARGE_WATTS = 300.0
TRACES = 200
STRESSED = 25

PAIR = (Served(300, 0.3), Served(50, 0.3))
BESIDE_THE_GRID = {
    "four_models": Trace(
        (Served(300, 0.3), Served(150, 0.2), Served(60, 0.2), Served(20, 0.1)),
        lag=1.0,
        noise=0.03,
    ),
    "load_shared_by_0.8": Trace(PAIR, together=0.8, noise=0.03, lag=1.0),
    "load_shared_wholly": Trace(PAIR, together=1.0, noise=0.03, lag=1.0),
    "noise_with_50_s_of_memory": Trace(PAIR, noise=0.05, noise_memory=0.98, lag=1.0),
    "noise_with_200_s_of_memory": Trace(PAIR, noise=0.05, noise_memory=0.995, lag=1.0),
    "after_200_s": Trace(PAIR, noise=0.03, lag=1.0, seconds=200),
    **{
        f"{model.watts:g}_w_beside_{others}_w_of_others": Trace(
            (model,), other_watts=others, quiet_seconds=120, noise=0.03, lag=1.0
        )
        for model in PAIR
        for others in (30, 100)
    },
}


@dataclass(frozen=True)
class Share:
    """One model of one trace: what it takes, what was found, and how far that holds."""

    trace: Trace
    model: Served
    ratio: float
    watts: float
    error: float
    """Ratio of the half width to the share; nan where it is absent."""
    joules: float
    """Energy attributed to the model over the whole trace."""

    @property
    def held(self) -> bool:
        """Whether the interval holds the truth."""
        return abs(self.model.watts / self.watts - 1) <= self.error


def shares(*, quick: bool = False) -> Iterator[Figure]:
    """Coverage over a grid of cells that are drawn at random, and beside it."""
    traces = 10 if quick else TRACES
    found = [
        share
        for number in range(traces)
        for rng in (np.random.default_rng([figures.SEED, number]),)
        for share in _shares(rng, _cell(rng))
    ]
    for name, chosen in SLICES.items():
        yield _coverage(name, [share for share in found if chosen(share)])
    yield _claims("grid", found)
    for name, trace in BESIDE_THE_GRID.items():
        beside, off = [], []
        for number in range(3 if quick else STRESSED):
            seed = [figures.SEED, number]
            beside += list(_shares(np.random.default_rng(seed), trace))
            busy = busy_seconds(np.random.default_rng(seed), trace)[:, -1]
            last = beside[-len(busy) :]
            off += [
                share.joules / (share.model.watts * seconds) - 1
                for share, seconds in zip(last, busy, strict=True)
            ]
        yield _coverage(name, beside)
        yield _claims(name, beside)
        yield _attributed(name, off)


def _cell(rng: np.random.Generator) -> Trace:
    """Two models somewhere in the grid of issue 19."""
    ratio = math.exp(rng.uniform(0.0, math.log(60.0)))
    busy = np.exp(rng.uniform(math.log(0.01), math.log(0.9), 2)).tolist()
    return Trace(
        (Served(LARGE_WATTS, busy[0]), Served(LARGE_WATTS / ratio, busy[1])),
        lag=rng.uniform(0.0, 4.0),
        noise=rng.uniform(0.0, 0.1),
        noise_memory=float(rng.choice([0.0, 0.5])),
        idle_error=rng.uniform(-0.2, 0.2),
        learnt_idle=bool(rng.integers(2)),
    )


def _shares(rng: np.random.Generator, trace: Trace) -> Iterator[Share]:
    (account,) = follow(rng, trace).devices.values()
    errors = account.power.errors()
    for number, model in enumerate(trace.models):
        mean, half = errors.get(key_of(number), (0.0, math.nan))
        error = half / mean if mean > 0 else math.nan
        ratio = LARGE_WATTS / trace.models[-1].watts
        joules = sum(
            energy
            for (key, _), energy in account.totals.models.items()
            if key == key_of(number)
        )
        watts = account.power.watts(key_of(number))
        yield Share(trace, model, ratio, watts, error, joules / MICRO)


SLICES: dict[str, Callable[[Share], bool]] = {
    "grid": lambda _: True,
    "large_model": lambda s: s.model is s.trace.models[0],
    "small_model": lambda s: s.model is not s.trace.models[0],
    "ratio_1_to_4": lambda s: s.ratio < 4,
    "ratio_4_to_15": lambda s: 4 <= s.ratio < 15,
    "ratio_15_to_60": lambda s: s.ratio >= 15,
    "busy_1_to_5_percent": lambda s: s.model.busy < 0.05,
    "busy_5_to_20_percent": lambda s: 0.05 <= s.model.busy < 0.2,
    "busy_20_to_90_percent": lambda s: s.model.busy >= 0.2,
    "lag_0_to_2_s": lambda s: s.trace.lag < 2,
    "lag_2_to_4_s": lambda s: s.trace.lag >= 2,
    "noise_0_to_5_percent": lambda s: s.trace.noise < 0.05,
    "noise_5_to_10_percent": lambda s: s.trace.noise >= 0.05,
    "idle_error_0_to_10_percent": lambda s: abs(s.trace.idle_error) < 0.1,
    "idle_error_10_to_20_percent": lambda s: abs(s.trace.idle_error) >= 0.1,
}


def _coverage(name: str, found: list[Share]) -> Figure:
    shown = [share for share in found if math.isfinite(share.error)]
    coverage = float(np.mean([share.held for share in shown])) if shown else math.nan
    spread = math.sqrt(GOAL * (1 - GOAL) / len(shown)) if shown else math.nan
    return {
        "name": f"honesty.energy_shares.{name}",
        "value": round(coverage, 4) if shown else None,
        "unit": "coverage",
        "goal": GOAL,
        "ok": coverage >= GOAL if shown else None,
        "n": len(shown),
        "standard_error": round(spread, 4) if shown else None,
        "absent": round(1 - len(shown) / len(found), 4) if found else None,
        "median_error_ratio": _median([share.error for share in shown]),
        "median_off": _median([abs(s.watts / s.model.watts - 1) for s in shown]),
        "seed": figures.SEED,
        "measured": "intervals shown that hold the watts a busy second of the model truly "
        "takes, after 25 minutes (300 windows) of a simulated trace through the books",
    }


def _claims(name: str, found: list[Share]) -> Figure:
    """Of the shares said to be within 5 %, how many are."""
    claimed = [share for share in found if share.error <= CLAIM]
    right = [abs(s.watts / s.model.watts - 1) <= CLAIM for s in claimed]
    value = float(np.mean(right)) if right else math.nan
    return {
        "name": f"honesty.energy_shares.{name}.said_to_be_within_5_percent",
        "value": round(value, 4) if right else None,
        "unit": "share",
        "goal": GOAL,
        "ok": value >= GOAL if right else None,
        "n": len(right),
        "seed": figures.SEED,
        "measured": "shares within 5 % of the truth, of those whose error ratio is at most "
        "0.05",
    }


def _attributed(name: str, off: list[float]) -> Figure:
    """Return how far the joules attributed over whole traces are from the truth."""
    return {
        "name": f"honesty.energy_shares.{name}.joules",
        "value": round(float(np.mean(off)), 4),
        "unit": "mean relative error",
        "ok": None,
        "n": len(off),
        "standard_error": round(float(np.std(off) / math.sqrt(len(off))), 4),
        "median_off": _median([abs(value) for value in off]),
        "seed": figures.SEED,
        "measured": "energy attributed to a model over a whole trace over what it took, less 1",
    }


def _median(values: list[float]) -> float | None:
    return round(float(np.median(values)), 4) if values else None
