"""Exposes the current findings of every configured comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from exporter import catalogue
from exporter.errors import InvalidRequestError, PartialResultError, TritonwatchError
from exporter.features.comparison.ab_comparison import ProductionComparison
from exporter.features.comparison.compared_resources import Resources
from exporter.features.comparison.comparison_verdicts import VERDICTS, Finding
from exporter.features.comparison.shadow_comparison import Shadow
from exporter.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from exporter.access.collector_base import Access
    from exporter.access.inventory import ModelKey
    from exporter.features.comparison.comparison_budget import Wait
    from exporter.features.comparison.comparison_settings import (
        ComparisonCollectorSettings,
        ComparisonSettings,
    )
    from exporter.samples import AnySample

log = structlog.get_logger()


class Comparison:
    """One entry of the configuration: its comparison and its results."""

    def __init__(self, settings: ComparisonSettings, access: Access) -> None:
        self.settings = settings
        self._access = access
        self._resources = Resources(
            settings.alpha / len(settings.wanted), access.grpc.statistics
        )
        self.findings: tuple[Finding, ...] = ()
        self.problem = ""
        self.source: Shadow | ProductionComparison | None = None

    def update(self) -> None:
        """Update everything to the current time."""
        if self.source is None:
            try:
                self.source = self._begin()
            except TritonwatchError as error:
                self.problem = str(error)
                return
        self.source.update()
        self.problem = self.source.problem
        if self.source.keys is None:
            return
        self._resources.update(self._access.exposed(), self.source.keys)
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
    def keys(self) -> tuple[ModelKey, ModelKey] | None:
        """Return the compared model versions, once they are known."""
        return None if self.source is None else self.source.keys

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

    def _begin(self) -> Shadow | ProductionComparison:
        if self.settings.mode == "ab":
            return ProductionComparison(self.settings, self._access)
        return Shadow(self.settings, self._access)

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
        if self.source is not None:
            yield from self._counted(self.source)
        for finding in self.findings:
            yield from _finding_samples(name, finding)

    def _counted(self, source: Shadow | ProductionComparison) -> Iterator[AnySample]:
        name = self.settings.name
        for outcome, count in source.outcomes.items():
            yield Sample(catalogue.COMPARISON_PAIRS, count, (name, outcome))
        for resource, ratio in source.budget_used.items():
            if ratio is not None:
                yield Sample(catalogue.COMPARISON_BUDGET, ratio, (name, resource))
        wait = self.wait
        if wait is not None:
            yield Sample(catalogue.COMPARISON_WAIT, wait.seconds, (name, wait.limit))

    def document(self) -> dict[str, Any]:
        """Return its results for the status page and the command."""
        return {
            "comparison": self.settings.name,
            "mode": self.settings.mode,
            "champion": self.settings.champion,
            "challenger": self.settings.challenger,
            "versions": None if self.keys is None else [v for _, v in self.keys],
            "inputs": None if self.source is None else self.source.inputs_name,
            "problem": self.problem or None,
            "failure": None if self.source is None else self.source.failure or None,
            "complete": self.complete,
            "alpha": self.settings.alpha,
            "next_pair": _shown_wait(self.wait),
            "pairs": {} if self.source is None else self.source.outcomes,
            "metrics": [shown(finding) for finding in self.findings],
        }


class ComparisonCollector:
    """All comparisons; each sends in its own threads, and is updated here."""

    def __init__(self, settings: ComparisonCollectorSettings, access: Access) -> None:
        self._board = access.board
        self.comparisons = [Comparison(s, access) for s in settings.comparisons]

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


def _shown_wait(wait: Wait | None) -> dict[str, Any] | None:
    if wait is None:
        return None
    known = wait.seconds != float("inf")
    return {"limit": wait.limit, "seconds": wait.seconds if known else None}


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
        **{
            bound: None if abs(value) == float("inf") else value
            for bound, value in (
                ("low", interval.low),
                ("estimate", interval.estimate),
                ("high", interval.high),
            )
        },
    }
