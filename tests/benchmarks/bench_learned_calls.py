"""Learnt calls of Python models: how often they are wrong beside production's requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import figures
import numpy as np

from exporter.access.call_evidence import Bracket
from exporter.access.footprints import Footprints
from exporter.access.own_traffic import NOTHING, Booking
from exporter.triton.model import ModelSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from figures import Figure
    from numpy.typing import NDArray

PARENT: Final = ModelSpec("parent", "1", (), (), backend="python")
CHILD: Final = ("child", "1")
PRESENT: Final = {("parent", "1"), CHILD}
SECONDS, BRACKET_SECONDS, INTERVAL_SECONDS = 400.0, 0.06, 5.0


def errors(*, quick: bool = False) -> Iterator[Figure]:
    """Servers whose production asks the child in bursts, probed until its calls are known."""
    servers = 20 if quick else 150
    for rate in (0, 5, 20, 50, 100, 500):
        for calls in (0, 1, 2):
            found = [_learnt(rate, calls, seed) - calls for seed in range(servers)]
            wrong = sum(error != 0 for error in found)
            yield figures.at_most(
                f"learned_calls.errors.{rate}_per_second.{calls}_calls",
                100.0 * wrong / servers,
                "% wrong",
                # Above 20 a second a call may be overlooked; none should be invented.
                2.0 if calls == 0 or rate <= 20 else None,
                measured=f"{calls} calls a probe beside {rate} requests a second "
                f"(MMPP); off by {min(found)} to {max(found)}",
                n=servers,
                seed=figures.SEED,
            )


def _learnt(rate: float, calls: int, seed: int) -> int:
    """Requests that a probe is taken to raise of the child."""
    rng = np.random.default_rng((figures.SEED, seed))
    arrivals = _bursts(rng, rate)
    at = rng.uniform(0, INTERVAL_SECONDS)
    footprints = Footprints(clock=lambda: at)
    made = 0
    while footprints.wants_bracket(PARENT, PRESENT) and at < SECONDS - 1:
        before, after = map(int, np.searchsorted(arrivals, [at, at + BRACKET_SECONDS]))
        rise = after - before + calls
        rises = {CHILD: Booking(rise, rise, {1: rise})} if rise else {}
        totals = {CHILD: before + made}
        bracket = Bracket(rises, totals=totals, began=at, seconds=BRACKET_SECONDS)
        footprints.add(PARENT, bracket, failed=False)
        made += calls
        at += INTERVAL_SECONDS + rng.uniform(-0.5, 0.5)
    return footprints.calls(PARENT).get(CHILD, NOTHING).requests


def _bursts(rng: np.random.Generator, rate: float) -> NDArray[np.float64]:
    """Arrivals of a Markov-modulated Poisson process: 2.5 times `rate` for a second on
    average, half of it for three."""
    parts, now, is_burst = [], 0.0, rng.random() < 1 / 4
    while now < SECONDS:
        dwell = rng.exponential(1.0 if is_burst else 3.0)
        count = rng.poisson(rate * (2.5 if is_burst else 0.5) * dwell)
        parts.append(now + rng.uniform(0, dwell, count))
        now += dwell
        is_burst = not is_burst
    return np.sort(np.concatenate(parts))
