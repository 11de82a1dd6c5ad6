"""Text of a run: one line of progress while it runs, a page at its end."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, TextIO

import numpy as np

from loadtests.dependent_intervals import supported_quantile
from loadtests.report.objective_report import judged
from loadtests.result import Outcome, seconds_over_all
from pages.units import duration, percent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from exporter.histograms.histogram import Histogram
    from loadtests.engine import Progress
    from loadtests.result import Floats, RunResult
    from loadtests.scenario import Scenario

SHOWN_ERRORS: Final = 5
QUANTILES: Final = (0.5, 0.9, 0.99, 0.999)
_SECOND: Final = 1.0
NAMES: Final = {
    "from_intended": "latency",
    "from_send": "from send",
    "dispatch_delay": "sender late by",
    "first_response": "first response",
    "mean_gap": "gap, mean",
}


class Line:
    """Progress, one line a second; rewritten in place on a terminal."""

    def __init__(self, out: TextIO, scenario: Scenario) -> None:
        self._out = out
        self._length = scenario.profile.length_seconds
        self._terminal = out.isatty()
        self._said_at = 0.0
        self._ended = np.empty(0, np.int64)
        self._written = False

    def update(self, progress: Progress) -> None:
        """Write a line if a second has passed."""
        self._ended = np.concatenate((self._ended, progress.finished))
        passed = progress.elapsed_seconds - self._said_at
        if passed < _SECOND:
            return
        self._said_at = progress.elapsed_seconds
        ended, self._ended = self._ended, np.empty(0, np.int64)
        shown = self._line(progress, ended, passed)
        self._out.write(f"\r{shown:<79}" if self._terminal else f"{shown}\n")
        self._out.flush()
        self._written = True

    def end(self) -> None:
        """Leave the line."""
        if self._terminal and self._written:
            self._out.write("\n")

    def _line(
        self,
        progress: Progress,
        ended: np.ndarray[tuple[int], np.dtype[np.int64]],
        passed: float,
    ) -> str:
        requests = progress.requests
        chosen = requests.where(ended)
        timed = chosen.timed
        late = chosen.done[timed] - chosen.intended[timed]
        tail = duration(float(np.quantile(late, 0.99))) if late.size else "?"
        missed = len(chosen) - chosen.count(Outcome.OK)
        return (
            f"{progress.elapsed_seconds:5.0f} of {self._length:.0f} s"
            f"  {chosen.count(Outcome.OK) / passed:7.0f}/s"
            f"  p99 {tail}  in flight {progress.in_flight}  missed {missed}"
        )


def text(scenario: Scenario, result: RunResult) -> str:
    """The page."""
    return "\n".join(_lines(scenario, result)) + "\n"


def _lines(scenario: Scenario, result: RunResult) -> Iterator[str]:
    about, requests = result.about, result.requests
    models = ", ".join(about.entries)
    kind = about.profile.get("kind", about.mode)
    yield f"{scenario.name}: {models} over {about.protocol} at {about.address}"
    yield (
        f"  {kind}, {result.duration_seconds:.3g} s, {len(requests)} requests"
        f", seed {about.seed}"
    )
    yield (
        f"  correct        {result.throughput:.5g}/s"
        + (f" of {result.intended_rate:.5g}/s intended" if about.mode == "open" else "")
    )
    exact = seconds_over_all(requests)
    yield from _exact_line(result, exact, "from_intended")
    if about.mode == "open":
        yield from _exact_line(result, exact, "from_send")
        yield from histogram_line("sender late by", result.dispatch_delay)
    yield from _exact_line(result, exact, "first_response")
    yield from _exact_line(result, exact, "mean_gap")
    yield from histogram_line("gap, each", result.between_responses)
    yield from _streamed(result)
    yield from _misses(result)
    yield from _slo(scenario, result)
    yield from _goodput(scenario, result)
    yield f"  {result.verdict}"
    for warning in result.verdict.warnings:
        yield f"  note: {warning}"


def histogram_line(name: str, histogram: Histogram) -> Iterator[str]:
    """One line of quantiles, those that the sample supports; none where it is empty."""
    if not histogram.count:
        return
    shown = [
        f"p{100 * q:g} {duration(histogram.quantile(q))}"
        for q in QUANTILES
        if histogram.quantile_interval(q) is not None
    ]
    yield f"  {name:<14} {'  '.join([*shown, f'max {duration(histogram.max)}'])}"


def _exact_line(
    result: RunResult, exact: Mapping[str, Floats], name: str
) -> Iterator[str]:
    """One line of exact quantiles over all requests; none where nothing was measured."""
    measured: Histogram = getattr(result, name)
    if not measured.count:
        return
    sides = ((q, supported_quantile(exact[name], q)) for q in QUANTILES)
    values = ((q, None if side is None else side.value) for q, side in sides)
    yield quantiles_line(NAMES[name], values, measured)


def quantiles_line(
    title: str, values: Iterable[tuple[float, float | None]], measured: Histogram
) -> str:
    """One line of quantiles, those that the requests support; infinite ones are misses."""
    shown = [
        f"p{100 * q:g} {duration(value) if math.isfinite(value) else 'no answer'}"
        for q, value in values
        if value is not None
    ]
    return f"  {title:<14} {'  '.join([*shown, f'max {duration(measured.max)}'])}"


def _misses(result: RunResult) -> Iterator[str]:
    requests = result.requests
    counts = [
        f"{requests.count(outcome)} {outcome.name.lower()}"
        for outcome in Outcome
        if outcome is not Outcome.OK and requests.count(outcome)
    ]
    if not counts:
        return
    yield f"  missed         {percent(result.miss_ratio)}: {', '.join(counts)}"
    for message, number in list(result.errors.items())[:SHOWN_ERRORS]:
        yield f"    {number} x {message}"


def _slo(scenario: Scenario, result: RunResult) -> Iterator[str]:
    objective = scenario.objective()
    if objective is None:
        return
    for term in objective.terms:
        found = judged(term, result.requests)
        if found.passed is None:
            yield f"  {term.text:<14} NOT MEASURED: {found.unmeasured}"
            continue
        state = "met" if found.passed else "MISSED"
        gaps = f"; {found.without_gap} answers without a gap not measured"
        yield (
            f"  {term.text:<14} {'NOT PROVEN' if found.unproven else state}: "
            f"{percent(found.missed_ratio)} missed, "
            f"{percent(term.allowed_ratio)} allowed{gaps if found.without_gap else ''}"
        )
        if found.unproven:
            yield f"    {found.unproven}"


def _streamed(result: RunResult) -> Iterator[str]:
    """Lines for the tokens, where the server counts them, and responses of correct answers."""
    requests = result.requests
    for title, counts in (
        ("output tokens", requests.tokens),
        ("responses", requests.responses),
    ):
        known = counts[(counts > 0) & (requests.outcome == Outcome.OK)]
        if known.size:
            yield (
                f"  {title:<14} {result.per_second(counts):.5g}/s, "
                f"{known.mean():.4g} a request"
            )


def _goodput(scenario: Scenario, result: RunResult) -> Iterator[str]:
    limits = scenario.limits()
    if limits is None:
        return
    if unmeasured := limits.unmeasured(result.requests):
        yield f"  goodput        NOT MEASURED: {unmeasured}"
        return
    good = limits.good(result.requests)
    yield (
        f"  goodput        {result.per_second(good):.5g}/s: {percent(good.mean())} of "
        f"requests within {limits.text}"
    )
