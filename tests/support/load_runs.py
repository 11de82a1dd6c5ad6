"""Set-up that tests of load share: the record of a run, and a few requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from loadtests.engine import Options, run_closed
from loadtests.report import run_document
from loadtests.result import About, Outcome, Requests, RunResult, Verdict
from pages.blocks import Figure, Fold, Section

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadtests.report.run_report import RunReport
    from pages.plots import Plot

SECONDS = 40.0


def about(**changes: Any) -> About:
    """The setup of a run over gRPC, one model in an open loop."""
    given: dict[str, Any] = {
        "mode": "open",
        "protocol": "grpc",
        "address": "localhost:8001",
        "entries": ("digits",),
        "seed": 1,
        "timeout_seconds": 1.0,
        "in_flight": 100,
        "payload_sha256": "0" * 64,
        "started_at": 1.7e9,
        **changes,
    }
    return About(**given)


def send(target, mix, count=20, *, concurrency=4, timeout_seconds=5.0, **options):
    """Send this number of requests in a closed loop, in half a minute at most."""
    return run_closed(
        target,
        mix,
        concurrency=concurrency,
        duration_seconds=max(30.0, timeout_seconds),
        requests=count,
        options=Options(timeout_seconds=timeout_seconds, **options),
    )


def made(
    seed: int = 1,
    *,
    slower: float = 1.0,
    missed: float = 0.0,
    seconds: float = SECONDS,
    verdict: Verdict | None = None,
    profile: dict | None = None,
) -> RunResult:
    """Latencies of an hour-glass of queues: each block of a second has its own level."""
    rng = np.random.default_rng(seed)
    count = int(200 * seconds)
    requests = Requests.empty(count)
    requests.intended[:] = np.sort(rng.random(count)) * seconds
    requests.sent[:] = requests.intended + 1e-4
    level = 0.004 * rng.lognormal(0, 0.1, int(seconds) + 1)
    wait = level[requests.intended.astype(int)] * rng.lognormal(0, 0.4, count) * slower
    requests.done[:] = requests.sent + wait
    requests.outcome[:] = np.where(
        rng.random(count) < missed, Outcome.ERROR, Outcome.OK
    )
    profile = profile or {"kind": "poisson", "requests_per_second": 200.0}
    return RunResult.of(
        about(entries=("digits <fp32>",), profile=profile),
        requests,
        duration_seconds=seconds,
        sender_cpu_seconds=1.0,
        verdict=verdict,
        errors={"<script>alert(1)</script>": 3} if missed else {},
    )


def of_waits(waits: np.ndarray, seconds: float = 100.0) -> RunResult:
    """A run whose requests took `waits` (N,), in order."""
    requests = Requests.empty(waits.size)
    requests.intended[:] = np.linspace(0, seconds, waits.size, endpoint=False)
    requests.sent[:] = requests.intended
    requests.done[:] = requests.intended + waits
    requests.outcome[:] = Outcome.OK
    return RunResult.of(
        about(), requests, duration_seconds=seconds, sender_cpu_seconds=1.0
    )


def blocks_of(holder: Any) -> Iterator[Any]:
    """Every block of a document, also within sections and folds."""
    for block in holder.blocks:
        yield block
        if isinstance(block, Section | Fold):
            yield from blocks_of(block)


def charts_of(report: RunReport) -> dict[str, Plot]:
    """The charts of its page by title."""
    blocks = blocks_of(run_document.document(report))
    return {b.plot.title: b.plot for b in blocks if isinstance(b, Figure)}
