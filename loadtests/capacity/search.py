"""Capacity search: chooses the next rate until the boundary is known well enough."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
from pydantic import Field
from scipy import stats

from drift.numerics.dependence import LEAST_FREEDOM
from exporter.settings import Settings
from loadtests.capacity.estimate import Estimate, Levels, estimate
from loadtests.capacity.observation import settled_alike

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from loadtests.capacity.observation import Observation
    from loadtests.capacity.search_report import Ending

_FACTOR: Final = 1.5
_BRACKET: Final = 1.2
_AHEAD: Final = 0.9  # of a run: how much sooner the two nearest levels are tried
_MEMORIES: Final = 4.0
"""Length of a run, in correlation times of misses, that shows that correlation ends."""
_LEAST_LONGER: Final = 4.0  # longer runs that the rest of the budget has to hold
_FEWEST: Final = 10  # requests of a run, if the budget has the time for them
_CHANCE: Final = 0.001  # low, since requests near each other miss together
_LEAST_MISSED: Final = 2  # runs at the lowest rate
_SPARED: Final = 0.05  # without a miss, 3 / allowed requests
_LEAST_OF_START: Final = 6.0  # where to stop below a start of less than 6 requests/s
_FEW: Final = 200  # resamples while searching; the result takes more


class SearchSettings(Settings):
    """Duration and resolution of a capacity search."""

    budget_seconds: float = Field(default=90.0, gt=1, le=86_400)
    """Time of load in all."""
    run_seconds: float = Field(default=6.0, gt=0.5, le=3600)
    """Time of a run near the boundary."""
    bracket_seconds: float = Field(default=3.0, gt=0.2, le=3600)
    """Time of a run that brackets the boundary."""
    repetitions: int = Field(default=5, ge=3, le=1000)
    """Fewest runs within one level of the boundary; twice as many are made about it.
    `no_rate_holds` needs two runs at the lowest rate whose misses chance does not explain."""
    precision_ratio: float = Field(default=0.01, gt=0, lt=1)
    """End when half the interval is at most this share of the estimate."""
    level_ratio: float = Field(default=1.06, gt=1.001, le=2)
    """Ratio of neighbouring rates."""
    least_rate: float = Field(default=1.0, gt=0)
    """An objective missed at this rate is missed at every rate; a search that starts
    below six times this rate goes lower, to a sixth of its start.
    """
    most_rate: float = Field(default=20_000.0, gt=0)
    """Highest rate to try."""


@dataclass(slots=True)
class Search:
    """The state of one search."""

    measure: Callable[[float, float, int], Observation | None]
    """Makes a run at a rate, for some seconds, with a number; None where it does not count."""
    allowed: NDArray[np.float64]
    settings: SearchSettings
    rng: np.random.Generator
    log: Callable[[str], None] = lambda _: None
    stopped: Callable[[], bool] = lambda: False
    clock: Callable[[], float] | None = None
    """Seconds that count for the budget; without one, those of load."""
    runs: list[Observation] = field(default_factory=list)
    rejected: int = 0
    spent_seconds: float = 0.0
    _tries: dict[int, int] = field(default_factory=dict)
    _index: int = 0
    _began: float = 0.0
    _run_seconds: float = 0.0

    def run(self, start_rate: float) -> Ending:
        """Bracket the boundary from `start_rate`, then gather runs about it."""
        least = min(self.settings.least_rate, start_rate / _LEAST_OF_START)
        self.settings = self.settings.model_copy(update={"least_rate": least})
        start = min(start_rate, self.settings.most_rate)
        self._began = self.clock() if self.clock else 0.0
        self._run_seconds = self.settings.run_seconds
        centre = self._bracket(start)
        if self.stopped():
            return "stopped"
        if centre is None:
            return self._one_sided()
        while self.spent_seconds + self._run_seconds <= self.settings.budget_seconds:
            self._try(self._next(centre), self._run_seconds)
            if self.stopped():
                return "stopped"
            if self._precise():
                return "precise"
        return "budget"

    def _one_sided(self) -> Ending:
        """Return why all runs were on one side of the boundary, or there were none."""
        if not self.runs:
            return "budget"
        if self._highest_holds():
            return "every_rate_holds"
        return "no_rate_holds" if self._none_holds() else "budget"

    def _none_holds(self) -> bool:
        """True if chance does not explain the misses at the lowest rate, by the binomial.

        A budget that ended at a higher rate shows nothing about lower rates, nor does one
        run, in which a single pause may have delayed all that came.
        """
        missed = [r for r in self.runs if r.rate <= self.settings.least_rate]
        if sum(not self._holds(run) for run in missed) < _LEAST_MISSED:
            return False
        requests, misses = self._sent(0.0, self.settings.least_rate)
        by_chance = stats.binom.sf(misses - 1, requests, self.allowed)
        return bool(requests >= _FEWEST and by_chance.min() < _CHANCE)

    def _highest_holds(self) -> bool:
        """True if chance does not explain that so few miss at the highest rate.

        Chance as for independent requests: pauses that are rarer than the search is long
        remain unseen.
        """
        requests, misses = self._sent(self.settings.most_rate, np.inf)
        by_chance = stats.binom.cdf(misses, requests, self.allowed)
        return bool(by_chance.max() < _SPARED)

    def _sent(self, low: float, high: float) -> tuple[int, NDArray[np.int64]]:
        """Return the requests of all runs between two rates, and their misses by term."""
        runs = [run for run in self.runs if low <= run.rate <= high]
        misses = [run.misses.sum(axis=0) for run in runs]
        none = np.zeros(self.allowed.shape, np.int64)
        return sum(run.requests for run in runs), np.sum([none, *misses], axis=0)

    @property
    def bracketed(self) -> bool:
        """True if some run met the objective and some missed it."""
        return {self._holds(run) for run in self.runs} == {True, False}

    def found(self, *, resamples: int = _FEW) -> Estimate:
        """Return the boundary by the runs so far."""
        return estimate(
            settled_alike(self.runs), self.allowed, self.rng, resamples=resamples
        )

    def doubts(self, found: Estimate) -> list[str]:
        """Return reasons why the interval of `found` is unreliable."""
        if not 0 < found.low <= found.high < np.inf:
            return []
        if not self._long_enough(found):
            return [
                (
                    "the variance of misses still grows with the length of the runs, up to "
                    f"{self._run_seconds:g} s; give --budget and --run-seconds more"
                )
            ]
        if found.freedom < LEAST_FREEDOM:
            return [
                (
                    "a few bursts make up the misses near the boundary "
                    f"({found.freedom:.1f} of at least {LEAST_FREEDOM:g}); increase --budget"
                )
            ]
        return []

    def _long_enough(self, found: Estimate) -> bool:
        memory = found.memory_seconds
        return memory is not None and _MEMORIES * memory <= self._run_seconds

    def _lengthen(self, found: Estimate) -> None:
        """Double the runs while misses stay correlated for too much of one."""
        left = self.settings.budget_seconds - self.spent_seconds
        longer = 2.0 * self._run_seconds
        if not self._long_enough(found) and _LEAST_LONGER * longer <= left:
            self._run_seconds = longer
            self.log(f"runs of {longer:g} s: misses are correlated for long")

    def _holds(self, run: Observation) -> bool:
        return bool((run.shares <= self.allowed).all())

    def _bracket(self, rate: float) -> float | None:
        """Return a rate near the boundary, by halving on a logarithmic scale."""
        settings = self.settings
        low, high, half = 0.0, np.inf, settings.budget_seconds / 2
        while high > _BRACKET * low:
            if self.spent_seconds > half and low and high < np.inf:
                break
            if self.spent_seconds > settings.budget_seconds or self.stopped():
                return None
            run = self._try(rate, settings.bracket_seconds)
            if run is None:
                continue
            if self._holds(run):
                if self._highest_holds():
                    return None
                low = rate
            else:
                if self._none_holds():
                    return None
                high = rate
            rate = self._between(low, high)
        return float(np.sqrt(low * high))

    def _between(self, low: float, high: float) -> float:
        if not low:
            return max(high / _FACTOR, self.settings.least_rate)
        if high == np.inf:
            return min(low * _FACTOR, self.settings.most_rate)
        return float(np.sqrt(low * high))

    def _next(self, centre: float) -> float:
        """Return the level with the fewest runs, of the two on each side of the boundary.

        The nearest on each side comes sooner by most of a run; ties are drawn, so that
        drifts of the machine are not mistaken for an effect of the rate.
        """
        levels = Levels.of(settled_alike(self.runs))
        rate = float(levels.capacity(levels.misses, self.allowed).min())
        # One unlucky short run may have moved the bracket: continue from its edge.
        rate = min(max(rate, float(levels.rates[0])), float(levels.rates[-1]))
        grain = np.log(self.settings.level_ratio)
        exact = float(np.log(rate / centre) / grain)
        below = int(np.floor(exact))
        chosen = min(
            (below - 1, below, below + 1, below + 2),
            key=lambda step: (
                self._tries.get(step, 0) + (_AHEAD if abs(step - exact) > 1 else 0.0),
                self.rng.random(),
            ),
        )
        self._tries[chosen] = self._tries.get(chosen, 0) + 1
        return min(centre * float(np.exp(chosen * grain)), self.settings.most_rate)

    def _precise(self) -> bool:
        if sum(self._tries.values()) < 2 * self.settings.repetitions:
            return False
        found = self.found()
        self.log(
            f"{found.rate:.4g} requests/s [{found.low:.4g}, {found.high:.4g}] after "
            f"{len(self.runs)} runs"
        )
        self._lengthen(found)
        narrow = found.width_ratio <= self.settings.precision_ratio
        return narrow and not self.doubts(found)

    def _try(self, rate: float, seconds: float) -> Observation | None:
        left = self.settings.budget_seconds - self.spent_seconds
        seconds = max(seconds, min(_FEWEST / rate, left))
        run = self.measure(rate, seconds, self._index)
        self._index += 1
        self.spent_seconds += seconds
        if self.clock is not None:
            self.spent_seconds = self.clock() - self._began
        if run is None or not run.requests:
            self.rejected += 1
            return None
        self.runs.append(run)
        return run
