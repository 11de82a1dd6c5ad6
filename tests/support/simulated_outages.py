"""Runs against a server whose failures are known, made without a server or a clock."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from load_runs import about

from loadtests.chaos.measuring.observations import Check, Event, Evidence, Series
from loadtests.result import Outcome, Requests, RunResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]
    Spans = tuple[tuple[float, float], ...]

TIMEOUT_SECONDS = 1.0
_SENT_LATE_SECONDS = 1e-4


class Sample(NamedTuple):
    """A value that a sidecar showed."""

    at_seconds: float
    metric: str
    labels: Mapping[str, str]
    value: float


def polled_up(seconds: float) -> tuple[Sample, ...]:
    """A sidecar that was scraped every quarter of a second."""
    looks = np.arange(0.0, seconds, 0.25).tolist()
    return tuple(Sample(at, "up", {}, 1.0) for at in looks)


def series_of(samples: Iterable[Sample]) -> tuple[Series, ...]:
    """The same by series, as they are recorded."""
    found: dict[tuple[str, tuple[tuple[str, str], ...]], list[Sample]] = {}
    for one in sorted(samples, key=lambda sample: sample.at_seconds):
        key = one.metric, tuple(sorted(one.labels.items()))
        found.setdefault(key, []).append(one)
    return tuple(
        Series(
            metric=metric,
            labels=dict(labels),
            at_seconds=tuple(one.at_seconds for one in rows),
            values=tuple(float(one.value) for one in rows),
        )
        for (metric, labels), rows in sorted(found.items())
    )


def poisson(rate: float, seconds: float, seed: int = 1) -> Floats:
    """When requests are due: independent ones, so many a second."""
    rng = np.random.default_rng(seed)
    gaps = rng.exponential(1 / rate, int(seconds * rate * 1.5) + 50)
    due: Floats = np.cumsum(gaps)
    return due[due < seconds]


def run(
    due: ArrayLike,
    *,
    latency: float = 0.002,
    hangs: Spans = (),
    refuses: Spans = (),
    lies: Spans = (),
    slow: Spans = (),
    slow_seconds: float = 0.1,
    timeout: float = TIMEOUT_SECONDS,
    interrupted: bool = False,
) -> RunResult:
    """A run whose server hangs, refuses at once, lies or is slow in these spans of time.

    What is under way when a hang begins, or comes within it, is answered at its end.
    """
    at = np.asarray(due, np.float64)
    done, outcome = at + latency, np.full(at.size, Outcome.OK, np.uint8)
    for start, end in slow:
        done[(at >= start) & (at < end)] += slow_seconds
    for start, end in lies:
        outcome[(at >= start) & (at < end)] = Outcome.WRONG
    for start, end in hangs:
        held = (done > start) & (at < end)
        done[held] = np.maximum(done[held], end + latency)
    for start, end in refuses:
        refused = (done > start) & (at < end)
        outcome[refused] = Outcome.ERROR
        done[refused] = np.maximum(at[refused], start) + latency / 10
    late = done - at > timeout
    outcome[late], done[late] = Outcome.TIMEOUT, at[late] + timeout
    return result(at, done, outcome, timeout=timeout, interrupted=interrupted)


def result(
    due: ArrayLike,
    done: ArrayLike,
    outcome: ArrayLike,
    *,
    timeout: float = TIMEOUT_SECONDS,
    interrupted: bool = False,
    mode: Any = "open",
) -> RunResult:
    """A run of these requests; what was not sent is UNSENT and has no `done`."""
    at, ended = np.asarray(due, np.float64), np.asarray(done, np.float64)
    how = np.asarray(outcome, np.uint8)
    unsent = np.isin(how, (Outcome.UNSENT, Outcome.REJECTED))
    requests = replace(
        Requests.empty(at.size),
        intended=at,
        sent=np.where(unsent, np.nan, at + _SENT_LATE_SECONDS),
        done=np.where(unsent, np.nan, ended),
        outcome=how,
    )
    last = float(np.nanmax(ended, initial=0.0))
    return RunResult.of(
        about(mode=mode, timeout_seconds=timeout, interrupted=interrupted),
        requests,
        duration_seconds=max(last, float(at.max(initial=0.0)), 1e-3),
        sender_cpu_seconds=0.1,
    )


def evidence(
    load: RunResult | None,
    *,
    inject: float | None = None,
    revert: float | None = None,
    kind: str = "freeze_server",
    extension: dict[str, Any] | None = None,
    samples: Iterable[Sample] = (),
    **more: Any,
) -> Evidence:
    """Of an experiment with one fault, whose hypothesis held when it began."""
    events, checks = [], []
    if inject is not None:
        checks = [Check(inject, "during", "availability", 1.0, met=True)]
        events += [
            Event(inject, "inject", {"kind": kind}),
            Event(inject + 0.001, "injected", {"kind": kind}),
        ]
    if revert is not None:
        events += [Event(revert, "revert", {"kind": kind})]
        events += [Event(revert, "reverted", {"kind": kind})]
    document = {
        "version": "1.0.0",
        "title": "The server is frozen",
        "description": "Nothing answers.",
        "steady-state-hypothesis": {
            "title": "Users are served",
            "probes": [
                {"type": "probe", "name": "availability", "tolerance": [0.99, 1]}
            ],
        },
        "method": [],
        "extensions": [{"name": "tritonwatch", **(extension or {})}],
    }
    given: dict[str, Any] = {
        "experiment": document,
        "started_at": 1.7e9,
        "ended_seconds": 0.0 if load is None else load.duration_seconds,
        "status": "completed",
        "load": load,
        "events": tuple(events),
        "checks": tuple(checks),
        "series": series_of(samples),
    }
    return Evidence(**{**given, **more})
