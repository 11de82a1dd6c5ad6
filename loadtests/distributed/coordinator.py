"""The Locust master: one schedule for all workers, one result from them, and its text."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from exporter.histograms.histogram import Histogram
from exporter.histograms.quantiles import interval_ranks, quantile_rank
from loadtests.announce import AnnouncedRun
from loadtests.load_objective import TermResult, seconds_of
from loadtests.result import HISTOGRAMS, Outcome, Verdict, histograms_of
from loadtests.run_text import (
    NAMES,
    QUANTILES,
    SHOWN_ERRORS,
    histogram_line,
    quantiles_line,
)
from loadtests.scenario import ClosedLoop, to_json
from pages.units import percent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from loadtests.load_objective import Term
    from loadtests.result import Requests
    from loadtests.scenario import Scenario

EXIT_FINDING: Final = 1
EXIT_INVALID: Final = 3
_LEAD_SECONDS: Final = 0.5
"""Time from the start command to the start: it has to reach every worker."""
_READY_SECONDS: Final = 120.0
_OVERTIME_SECONDS: Final = 15.0
log = logging.getLogger("tritonwatch")


@dataclass(slots=True)
class Tally:
    """Requests that ended, by outcome, and their times."""

    outcomes: Counter[str] = field(default_factory=Counter)
    histograms: dict[str, Histogram] = field(
        default_factory=lambda: {name: Histogram() for name in HISTOGRAMS}
    )
    sums: Counter[str] = field(default_factory=Counter)
    """Output tokens and responses of correct answers, and by the text of a term the
    requests that missed it, those it leaves out and those that have its time."""

    def add(self, requests: Requests, terms: Sequence[Term] = ()) -> None:
        """Count requests that ended, and those that missed each of the terms."""
        answered = requests.where(requests.outcome == Outcome.OK)
        self.sums["tokens"] += int(answered.tokens.sum())
        self.sums["responses"] += int(answered.responses.sum())
        for term in terms:
            timed = np.isfinite(seconds_of(answered, term.measure))
            self.sums[f"{term.text} missed"] += int(term.misses(requests).sum())
            self.sums[f"{term.text} left out"] += int(term.gapless(requests).sum())
            self.sums[f"{term.text} timed"] += int(timed.sum())
        for outcome in Outcome:
            found = requests.count(outcome)
            if found:
                self.outcomes[outcome.name.lower()] += found
        for name, histogram in histograms_of(requests).items():
            self.histograms[name].merge(histogram)

    def merge(self, other: Tally) -> None:
        """Add the counts of another tally."""
        self.outcomes.update(other.outcomes)
        self.sums.update(other.sums)
        for name, histogram in other.histograms.items():
            self.histograms[name].merge(histogram)

    @property
    def count(self) -> int:
        """Requests that ended."""
        return sum(self.outcomes.values())

    @property
    def answered(self) -> int:
        """Requests with a correct answer."""
        return self.outcomes[Outcome.OK.name.lower()]

    def quantile(self, name: str, q: float) -> float | None:
        """Return a quantile over all requests that ended, infinite among the misses.

        None where they are too few for it. Those that timed out are at the end of the
        histogram.
        """
        if interval_ranks(self.count, q) is None:
            return None
        rank, timed = quantile_rank(self.count, q), self.histograms[name]
        if rank > min(self.answered, timed.count):
            return math.inf
        return timed.quantile(rank / timed.count)

    def judged(self, term: Term) -> TermResult:
        """Return a term, judged by the requests that missed it."""
        if not self.count:
            return TermResult(None, None, "no request ended")
        left_out = self.sums[f"{term.text} left out"]
        if self.answered and not self.sums[f"{term.text} timed"]:
            left_out = 0
            if self.count - self.answered <= term.allowed_ratio * self.count:
                reason = "no answer was streamed in several responses or tokens"
                return TermResult(None, None, reason)
        count = self.count - left_out
        missed = self.sums[f"{term.text} missed"] / count
        if missed > term.allowed_ratio:
            return TermResult(False, missed, without_gap=left_out)
        if interval_ranks(count, 1.0 - term.allowed_ratio) is None:
            reason = f"too few requests ({count}); make it longer"
            return TermResult(None, missed, reason)
        return TermResult(True, missed, without_gap=left_out)

    def to_state(self) -> dict[str, Any]:
        """Return it as values for JSON or msgpack."""
        return {
            "outcomes": dict(self.outcomes),
            "sums": dict(self.sums),
            "histograms": {n: h.to_state() for n, h in self.histograms.items()},
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Tally:
        """The tally that `to_state` described.

        Raises:
            ValueError: it contradicts itself.
        """
        known = {outcome.name.lower() for outcome in Outcome}
        outcomes = state["outcomes"]
        if not outcomes.keys() <= known:
            raise ValueError(f"found outcomes {sorted(outcomes)}; known are {known}")
        return cls(
            Counter({name: int(number) for name, number in outcomes.items()}),
            {
                name: Histogram.from_state(state["histograms"][name])
                for name in HISTOGRAMS
            },
            Counter(state["sums"]),
        )


@dataclass(slots=True)
class Share:
    """State and results of one worker; it was ready at a Unix time."""

    ready: bool = False
    ready_at: float = 0.0
    lost: bool = False
    failed: str = ""
    done: Mapping[str, Any] | None = None
    tally: Tally = field(default_factory=Tally)

    @property
    def over(self) -> bool:
        """Return whether no more is expected of it."""
        return self.lost or bool(self.failed) or self.done is not None


class Coordinator:
    """One run over all workers; `send(what, content, worker)` reaches a worker."""

    def __init__(
        self,
        scenario: Scenario,
        workers: Sequence[str],
        send: Callable[[str, dict[str, Any], str], None],
        sidecars: Sequence[str] = (),
    ) -> None:
        self.scenario = scenario
        self.shares = {worker: Share() for worker in workers}
        self.started_at: float | None = None
        self._send = send
        self._asked_at = time.monotonic()
        self._over_since: float | None = None
        self._closing = contextlib.ExitStack()
        self._announced = AnnouncedRun(
            "load", scenario.name, scenario.profile.kind, sidecars
        )

    def prepare(self) -> None:
        """Let every worker prepare its requests."""
        for worker in self.shares:
            self._send("prepare", {"scenario": to_json(self.scenario)}, worker)

    def receive(self, what: str, content: Mapping[str, Any]) -> None:
        """Handle a worker's report that it is ready, done, or has failed."""
        share = self.shares.get(content["worker"])
        if share is None or share.over:
            return  # it joined later, or was given up
        if "news" in content:
            share.tally.merge(Tally.from_state(content["news"]))
        match what:
            case "ready":
                share.ready, share.ready_at = True, time.time()
                if self._complete:
                    self._start()
            case "done":
                share.done = content
            case "failed":
                share.failed = str(content["message"])
                log.error("worker %s: %s", content["worker"], share.failed)

    def count(self, worker: str, news: Mapping[str, Any]) -> None:
        """Add the requests that ended since the worker's last report."""
        share = self.shares.get(worker)
        if share is not None:
            share.tally.merge(Tally.from_state(news))

    def check_workers(self, alive: Sequence[str]) -> None:
        """Give up workers that have disappeared."""
        for worker, share in self.shares.items():
            if worker not in alive and not share.over:
                share.lost = True
                log.error(
                    "worker %s was lost after %d of its requests had ended; its "
                    "later requests are unknown",
                    worker,
                    share.tally.count,
                )
        if self.started_at is None and any(s.ready for s in self.shares.values()):
            late = time.monotonic() - self._asked_at > _READY_SECONDS
            if late or self._complete:
                self._start()

    @property
    def _complete(self) -> bool:
        return all(share.ready or share.over for share in self.shares.values())

    def over(self, quiet_seconds: float) -> bool:
        """Return whether all workers have reported, and Locust's reports are in."""
        now = time.monotonic()
        if not (all(share.over for share in self.shares.values()) or self._overdue()):
            return False
        self._over_since = now if self._over_since is None else self._over_since
        return now - self._over_since >= quiet_seconds

    def _overdue(self) -> bool:
        if self.started_at is None:
            return time.monotonic() - self._asked_at > _READY_SECONDS
        if isinstance(self.scenario.profile, ClosedLoop):
            return False
        length = self.scenario.profile.length_seconds + self.scenario.timeout_seconds
        return time.time() > self.started_at + length + _OVERTIME_SECONDS

    def _start(self) -> None:
        if self.started_at is not None:
            return
        ready = [worker for worker, share in self.shares.items() if share.ready]
        self.started_at = time.time() + _LEAD_SECONDS
        for place, worker in enumerate(ready):
            order = {"start_at": self.started_at, "workers": len(ready)}
            order |= {"worker": place, "ready_at": self.shares[worker].ready_at}
            self._send("start", {**order, "sent_at": time.time()}, worker)
        phases = self.scenario.profile.phases()
        self._closing.enter_context(self._announced.announced(phases))

    def close(self) -> None:
        """Announce that the run is over."""
        self._closing.close()
        for problem in self._announced.problems:
            log.warning("%s", problem)

    # Results.

    def tally(self) -> Tally:
        """Return the counts of all workers together."""
        whole = Tally()
        for share in self.shares.values():
            whole.merge(share.tally)
        return whole

    def reasons(self) -> list[str]:
        """Return the reasons against the numbers."""
        found: list[str] = []
        for worker, share in self.shares.items():
            if share.lost:
                found.append(
                    f"worker {worker} was lost after {share.tally.count} of its requests"
                )
            elif share.failed:
                found.append(f"worker {worker}: {share.failed}")
            elif share.done is None:
                found.append(f"worker {worker} gave no result")
            else:
                found += [f"worker {worker}: {r}" for r in share.done["reasons"]]
        return found

    def warnings(self) -> list[str]:
        """Return the remarks on the numbers."""
        done = (share.done for share in self.shares.values() if share.done is not None)
        return [warning for content in done for warning in content["warnings"]]

    def added(self, what: str) -> dict[str, Any]:
        """Return the numbers that the workers reported under `what`, added up by name."""
        numbers: Counter[str] = Counter()
        for share in self.shares.values():
            numbers.update((share.done or {}).get(what, {}))
        return dict(numbers)

    def terms(self) -> list[tuple[Term, TermResult]]:
        """Return the terms of the scenario's objective with their results."""
        objective, tally = self.scenario.objective(), self.tally()
        return [(t, tally.judged(t)) for t in (objective.terms if objective else ())]

    def exit_code(self) -> int | None:
        """Return the exit status as that of `load run`; None leaves it to Locust."""
        passed = [found.passed for _, found in self.terms()]
        if self.reasons() or (None in passed and False not in passed):
            return EXIT_INVALID
        return EXIT_FINDING if False in passed else None

    def document(self) -> dict[str, Any]:
        """The result as JSON can hold it."""
        return {
            "format": "tritonwatch-load-distributed",
            "version": 1,
            "scenario": self.scenario.model_dump(mode="json"),
            "started_at": self.started_at,
            "verdict": {"valid": not self.reasons(), "reasons": self.reasons()},
            "warnings": self.warnings(),
            "errors": self.added("errors"),
            "objective": [
                {
                    "term": term.text,
                    "passed": found.passed,
                    "missed_ratio": found.missed_ratio,
                    "unmeasured": found.unmeasured,
                }
                for term, found in self.terms()
            ],
            "workers": {
                worker: {
                    "lost": share.lost,
                    "failed": share.failed,
                    "ended": share.tally.count,
                    "summary": (share.done or {}).get("summary"),
                }
                for worker, share in self.shares.items()
            },
            "per_second": self.added("per_second"),
            **self.tally().to_state(),
        }


def distributed_text(coordinator: Coordinator) -> str:
    """Return the page of a run over several workers."""
    return "\n".join(_distributed(coordinator)) + "\n"


def _distributed(coordinator: Coordinator) -> Iterator[str]:
    tally, scenario = coordinator.tally(), coordinator.scenario
    models = ", ".join(model.model for model in scenario.models)
    yield ""
    yield (
        f"{scenario.name}: {models} over {scenario.target.protocol}, "
        f"{scenario.profile.kind}, {len(coordinator.shares)} workers, "
        f"seed {scenario.seed}"
    )
    outcomes = ", ".join(f"{n} {name}" for name, n in sorted(tally.outcomes.items()))
    yield f"  requests       {tally.count}: {outcomes or 'none ended'}"
    if missed := tally.count - tally.answered:
        yield f"  missed         {percent(missed / tally.count)}"
    for name, title in NAMES.items():
        yield from _quantiles(tally, name, title)
    for name, rate in coordinator.added("per_second").items():
        if tally.sums[name]:
            yield f"  {name:<14} {tally.sums[name]}, {rate:.4g} a second"
    for message, number in list(coordinator.added("errors").items())[:SHOWN_ERRORS]:
        yield f"    {number} x {message}"
    for term, found in coordinator.terms():
        state = {True: "met", False: "MISSED", None: "NOT JUDGED"}[found.passed]
        said = found.unmeasured or (
            f"{percent(found.missed_ratio)} missed, {percent(term.allowed_ratio)} allowed"
        )
        yield f"  {term.text:<14} {state}: {said}"
    reasons = coordinator.reasons()
    yield f"  {Verdict(tuple(reasons))}"
    for warning in coordinator.warnings():
        yield f"  note: {warning}"


def _quantiles(tally: Tally, name: str, title: str) -> Iterator[str]:
    """One line of quantiles over all requests, if all correct answers have such a time."""
    histogram = tally.histograms[name]
    if name in {"dispatch_delay", "mean_gap"} or histogram.count < tally.answered:
        yield from histogram_line(title, histogram)
    elif histogram.count:
        values = ((q, tally.quantile(name, q)) for q in QUANTILES)
        yield quantiles_line(title, values, histogram)
