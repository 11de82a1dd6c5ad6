"""Exposes the current findings of every configured comparison, resources among them."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import structlog

from exporter import catalogue
from exporter.errors import (
    InvalidRequestError,
    PartialResultError,
    TritonError,
    TritonwatchError,
)
from exporter.features.comparison.confidence import (
    MIXTURE_WINDOWS,
    VERDICTS,
    Finding,
    Interval,
    mean_ratio,
)
from exporter.features.comparison.production_comparison import ProductionComparison
from exporter.features.comparison.shadow_comparison import Shadow
from exporter.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from exporter.access.collector_base import Access
    from exporter.access.inventory import ModelKey
    from exporter.features.comparison.comparison_budget import Wait
    from exporter.features.comparison.comparison_settings import (
        ComparisonCollectorSettings,
        ComparisonSettings,
        Metric,
    )
    from exporter.samples import AnySample
    from exporter.triton.protocol_types import ModelStatistics

ENERGY: Final = "triton_model_energy_joules_total"
INFERENCES: Final = "triton_inferences_total"
ENERGY_ERROR: Final = "triton_model_energy_share_error_ratio"
_READ: Final = frozenset({ENERGY, INFERENCES, ENERGY_ERROR})
"""Metrics that a comparison of energy reads."""
_MOST_WINDOWS: Final = 5_000
_TIMEOUT_SECONDS: Final = 2.0


def _widened(ratio: Interval, error: float) -> Interval:
    """Return the interval of a ratio less 1 whose two parts are off by a ratio, too.

    A model's watts are the same in every window: windows do not show their error.
    """
    return replace(
        ratio,
        low=(1.0 + ratio.low) / (1.0 + error) - 1.0,
        high=(1.0 + ratio.high) * (1.0 + error) - 1.0,
    )


class Resources:
    """Joules per inference from exposed samples, by window; memory from Triton."""

    def __init__(
        self,
        alpha: float,
        statistics: Callable[..., tuple[ModelStatistics, ...]],
        keys: tuple[ModelKey, ModelKey],
    ) -> None:
        self._alpha = alpha
        self._keys = keys
        self._last: tuple[tuple[float, float], tuple[float, float]] | None = None
        self._windows: list[tuple[float, float]] = []
        self._bytes = _memory(statistics, keys)
        self._error = 0.0
        """Of the ratio of the two energies, by the errors of the models' watts."""

    def update(self, exposed: Iterable[AnySample]) -> None:
        """Record the samples that are exposed now."""
        keys = self._keys
        found: dict[str, dict[ModelKey, float]] = defaultdict(dict)
        for sample in exposed:
            if sample.spec.name in _READ and isinstance(sample, Sample):
                values = found[sample.spec.name]
                key = (sample.labels[0], sample.labels[1])
                values[key] = values.get(key, 0.0) + sample.value
        energy, inferences = found.get(ENERGY, {}), found.get(INFERENCES, {})
        errors = found.get(ENERGY_ERROR, {})
        self._error = math.hypot(*(errors.get(key, 0.0) for key in keys))
        if set(keys) <= energy.keys() & inferences.keys():
            a, b = ((energy[key], inferences[key]) for key in keys)
            self._window((a, b))

    def intervals(self, wanted: Sequence[Metric]) -> dict[Metric, Interval]:
        """Return the intervals of energy and memory; unknown ones are absent."""
        found: dict[Metric, Interval] = {}
        if "energy" in wanted and self._windows:
            x, y = np.array(self._windows).T
            ratio = mean_ratio(x, y, self._alpha, MIXTURE_WINDOWS)
            if ratio is not None:
                found["energy"] = _widened(ratio, self._error)
        if "memory" in wanted and self._bytes is not None:
            champion, challenger = self._bytes
            effect = challenger / champion - 1
            # Triton reports it once, at load: it is not random.
            found["memory"] = Interval(effect, effect, effect, 1)
        return found

    def _window(self, now: tuple[tuple[float, float], tuple[float, float]]) -> None:
        if self._last is None:
            self._last = now
            return
        joules = [n[0] - b[0] for n, b in zip(now, self._last, strict=True)]
        inferences = [n[1] - b[1] for n, b in zip(now, self._last, strict=True)]
        if min(inferences) < 0 or min(joules) < 0:
            self._last = now
            return
        if min(inferences) >= 1 and min(joules) > 0:
            if len(self._windows) < _MOST_WINDOWS:
                self._windows.append(
                    (joules[0] / inferences[0], joules[1] / inferences[1])
                )
            self._last = now


def _memory(
    statistics: Callable[..., tuple[ModelStatistics, ...]],
    keys: tuple[ModelKey, ModelKey],
) -> tuple[int, int] | None:
    try:
        entries = statistics(timeout_seconds=_TIMEOUT_SECONDS)
    except TritonError:
        return None
    found = {entry.key: entry.memory_bytes for entry in entries}
    champion, challenger = (found.get(key, 0) for key in keys)
    return (champion, challenger) if champion and challenger else None


log = structlog.get_logger()


class Comparison:
    """One entry of the configuration: its comparison and its results."""

    def __init__(self, settings: ComparisonSettings, access: Access) -> None:
        self.settings = settings
        self._access = access
        self._resources: Resources | None = None
        self._compared: object = None
        self.findings: tuple[Finding, ...] = ()
        self.problem = ""
        self.source: Shadow | ProductionComparison | None = None

    def update(self) -> None:
        """Update everything to the current time."""
        if self.source is None:
            try:
                of_mode = ProductionComparison if self.settings.mode == "ab" else Shadow
                self.source = of_mode(self.settings, self._access)
            except TritonwatchError as error:
                self.problem = str(error)
                return
        self.source.update()
        self.problem = self.source.problem
        if self.source.keys is None:
            return
        compared = self.source.keys, self.source.loads
        if self._resources is None or compared != self._compared:
            self._compared, self._resources = compared, self._begin_anew(compared[0])
        self._resources.update(self._access.exposed())
        found = {
            **self.source.intervals(),
            **self._resources.intervals(self.settings.wanted),
        }
        self.findings = tuple(
            Finding(metric, found[metric], self.settings.margins.of(metric))
            for metric in self.settings.wanted
            if metric in found
        )

    def close(self) -> None:
        """Stop sending requests."""
        if self.source is not None:
            self.source.close()

    @property
    def complete(self) -> bool:
        """Return whether the verdicts are final."""
        return self.source is not None and self.source.complete

    @property
    def wait(self) -> Wait | None:
        """Return the limit that delays the next pair; None where no further pair is sent."""
        if self.source is None or self.problem or self.complete:
            return None
        return self.source.wait

    def _begin_anew(self, keys: tuple[ModelKey, ModelKey]) -> Resources:
        verdicts = {f.metric: f.verdict for f in self.findings}
        if self._resources is not None:
            name = self.settings.name
            log.warning("comparison_restarted", comparison=name, dropped=verdicts)
        alpha = self.settings.alpha / len(self.settings.wanted)
        return Resources(alpha, self._access.grpc.statistics, keys)

    def samples(self) -> Iterator[AnySample]:
        """triton_comparison_* of this one."""
        name = self.settings.name
        yield Sample(
            catalogue.COMPARISON_INFO,
            1,
            (
                name,
                self.settings.champion,
                self.settings.challenger,
                self.settings.mode,
            ),
        )
        running = not self.problem and not self.complete
        yield Sample(catalogue.COMPARISON_ASKING, running, (name,))
        yield Sample(catalogue.COMPARISON_COMPLETE, self.complete, (name,))
        if self.source is None:
            return
        for outcome, count in self.source.outcomes.items():
            yield Sample(catalogue.COMPARISON_PAIRS, count, (name, outcome))
        for resource, ratio in self.source.budget_used.items():
            yield Sample(catalogue.COMPARISON_BUDGET, ratio, (name, resource))
        wait = self.wait
        if wait is not None:
            yield Sample(catalogue.COMPARISON_WAIT, wait.seconds, (name, wait.limit))
        for finding in self.findings:
            yield from _finding_samples(name, finding)

    def document(self) -> dict[str, Any]:
        """Return its results for the status page and the command."""
        keys = None if self.source is None else self.source.keys
        wait = self.wait
        return {
            "comparison": self.settings.name,
            "mode": self.settings.mode,
            "champion": self.settings.champion,
            "challenger": self.settings.challenger,
            "versions": None if keys is None else [v for _, v in keys],
            "inputs": None if self.source is None else self.source.inputs_name,
            "problem": self.problem or None,
            "failure": None if self.source is None else self.source.failure or None,
            "complete": self.complete,
            "alpha": self.settings.alpha,
            "next_pair": wait
            and {"limit": wait.limit, "seconds": _finite(wait.seconds)},
            "pairs": {} if self.source is None else self.source.outcomes,
            "metrics": [shown(finding) for finding in self.findings],
        }


class ComparisonCollector:
    """All comparisons; each sends in its own threads, and is updated here."""

    def __init__(self, settings: ComparisonCollectorSettings, access: Access) -> None:
        self._board = access.board
        self.comparisons = [Comparison(s, access) for s in settings.comparisons]

    def inherit(self, predecessor: object) -> None:
        """Take over the comparisons whose settings are the same; they keep sending."""
        if not isinstance(predecessor, ComparisonCollector):
            return
        kept = {old.settings.name: old for old in predecessor.comparisons}
        self.comparisons = [
            old
            if (old := kept.get(fresh.settings.name, fresh)).settings == fresh.settings
            else fresh
            for fresh in self.comparisons
        ]
        # The predecessor closes what it still has.
        predecessor.comparisons = [
            old for old in predecessor.comparisons if old not in self.comparisons
        ]

    def collect(self) -> Sequence[AnySample]:
        """Update each comparison once.

        Raises:
            PartialResultError: one of them cannot compare its models; the others continue.
        """
        samples: list[AnySample] = []
        problems = []
        # Before its first inventory, which may come during this run, nothing is missing.
        was_read = self._board.was_read
        for comparison in self.comparisons:
            comparison.update()
            samples += comparison.samples()
            if comparison.problem:
                problems.append(f"{comparison.settings.name}: {comparison.problem}")
        if problems and was_read:
            raise PartialResultError(samples, InvalidRequestError("; ".join(problems)))
        return samples

    def close(self) -> None:
        """Stop sending requests."""
        for comparison in self.comparisons:
            comparison.close()

    def document(self) -> dict[str, Any]:
        """Return all results for the status page."""
        return {"comparisons": [c.document() for c in self.comparisons]}


def _finding_samples(name: str, finding: Finding) -> Iterator[AnySample]:
    interval, metric = finding.interval, finding.metric
    for bound in ("low", "estimate", "high"):
        value = getattr(interval, bound)
        # An infinite end of an interval holds no information.
        if abs(value) != float("inf"):
            yield Sample(catalogue.COMPARISON_EFFECT, value, (name, metric, bound))
    yield Sample(catalogue.COMPARISON_EFFECTIVE, interval.worth, (name, metric))
    yield Sample(catalogue.COMPARISON_MARGIN, finding.margin, (name, metric))
    for verdict in VERDICTS:
        in_force = finding.verdict == verdict
        yield Sample(catalogue.COMPARISON_VERDICT, in_force, (name, metric, verdict))


def _finite(value: float) -> float | None:
    return None if math.isinf(value) else value


def shown(finding: Finding) -> dict[str, Any]:
    """One metric, for programs."""
    interval = finding.interval
    return {
        "metric": finding.metric,
        "verdict": finding.verdict,
        "passes": finding.passes,
        "margin": finding.margin,
        "pairs": interval.pairs,
        "effective_pairs": interval.worth,
        "withheld": interval.withheld or None,
        "low": _finite(interval.low),
        "estimate": _finite(interval.estimate),
        "high": _finite(interval.high),
    }
