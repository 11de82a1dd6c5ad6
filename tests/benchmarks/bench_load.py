"""The load engine: punctuality inside Locust."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import figures
from sidecar_process import require_triton

from exporter.histograms.histogram import Histogram
from exporter.triton.embedded import EmbeddedTriton

if TYPE_CHECKING:
    from collections.abc import Iterator

    from figures import Figure

_MODELS = Path(__file__).parents[1] / "data" / "models"
_ROOT = Path(__file__).parents[2]
_TIMEOUT_SECONDS = 120
_LEAST_SENDS = 10_000
_SECONDS_A_RATE = 90.0


def open_loop(*, quick: bool = False) -> Iterator[Figure]:
    """Inside Locust: how late each request is sent, and whether all together are the
    Poisson process that was asked for, up to 2,000 a second a worker."""
    require_triton()
    with EmbeddedTriton(_MODELS) as triton:
        for rate in (500, 1000, 2000):
            # The variation of the gaps of fewer is not known to 3 %.
            seconds = 3.0 if quick else max(8.0, _LEAST_SENDS / rate)
            turns = 1 if quick else math.ceil(_SECONDS_A_RATE / seconds)
            documents = [
                _locust_document(triton, rate, seconds, seed=seed)
                for seed in range(rate, rate + turns)
            ]
            yield from _kept_time(rate, seconds, documents)


def _locust_document(
    triton: EmbeddedTriton, rate: int, seconds: float, *, seed: int
) -> dict[str, Any]:
    """Our open loop inside Locust: the document that `--result` writes."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        subprocess.run(
            [
                *(sys.executable, "-m", "locust", "-f", "loadtests/locustfile.py"),
                *("--headless", "--only-summary", "--host", f"grpc://{triton.grpc}"),
                *("--model", "double", "--load-profile", "poisson"),
                *("--rate", str(rate), "--duration", f"{seconds:g}"),
                *("--seed", str(seed), "--result", str(result)),
            ],
            capture_output=True,
            cwd=_ROOT,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
        document: dict[str, Any] = json.loads(result.read_text("utf-8"))
    return document


def _kept_time(
    rate: int, seconds: float, documents: list[dict[str, Any]]
) -> Iterator[Figure]:
    about = (
        f"{rate} Poisson requests a second for {seconds:g} s by one Locust worker over "
        "gRPC; median of n runs"
    )
    more = {"n": len(documents), "seed": rate, "versions": figures.versions("locust")}
    states = [document["histograms"]["dispatch_delay"] for document in documents]
    delays = [Histogram.from_state(state) for state in states]
    for q, goal in ((0.5, 150.0), (0.99, 600.0)):
        yield figures.at_most(
            f"load_locust_{rate}_late_p{100 * q:g}",
            unit="microseconds",
            goal=goal,
            measured=f"from when a request is due to its send, {about}",
            **figures.median([1e6 * (delay.quantile(q) or 0.0) for delay in delays]),
            **more,
        )
    paces = [_paces(document) for document in documents]
    yield figures.at_most(
        f"load_locust_{rate}_rate_error",
        unit="ratio",
        goal=0.01,
        measured=f"rate of the sends over that of the schedule, less 1, {about}",
        **figures.median([abs(sends[0] / due[0] - 1.0) for due, sends in paces]),
        **more,
    )
    yield figures.at_most(
        f"load_locust_{rate}_cv_error",
        unit="ratio",
        goal=0.03,
        measured="coefficient of variation of the gaps between sends, less the 1 of a "
        f"Poisson process, {about}; that of the schedule is within "
        f"{max(abs(due[1] - 1.0) for due, _ in paces):.2g}",
        **figures.median([abs(sends[1] - 1.0) for _, sends in paces]),
        **more,
    )


def _paces(document: dict[str, Any]) -> list[tuple[float, float]]:
    """(rate, variation) of the schedule and of the sends."""
    parts = (document["summary"][part] for part in ("schedule", "sends"))
    return [(part["requests_per_second"], part["gap_variation"]) for part in parts]
