"""Run results as JSON files: everything, exact, with every request's times."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pydantic import BaseModel, NonNegativeFloat, NonNegativeInt, PositiveFloat

from exporter.histograms.histogram import Histogram
from loadtests import json_file
from loadtests.dependent_intervals import supported_quantile
from loadtests.errors import PlanError
from loadtests.plan import MAX_REQUESTS
from loadtests.result import (
    HISTOGRAMS,
    About,
    Outcome,
    Requests,
    RunResult,
    Unanswered,
    Verdict,
    finite,
    measured_seconds,
    quantile_of,
    seconds_over_all,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from loadtests.result import Floats

FORMAT: Final = "tritonwatch-load-run"
VERSION: Final = 1
QUANTILES: Final = (0.5, 0.9, 0.95, 0.99, 0.999)
_HISTOGRAMS: Final = (*HISTOGRAMS, "between_responses")


def to_document(result: RunResult) -> dict[str, Any]:
    """Return it as JSON values. Times are exact; `summary` repeats results for readers."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "about": asdict(result.about),
        "verdict": {"valid": result.verdict.valid, **asdict(result.verdict)},
        "duration_seconds": result.duration_seconds,
        "sender_cpu_seconds": result.sender_cpu_seconds,
        "errors": dict(result.errors),
        "unanswered": asdict(result.unanswered),
        "summary": summary(result),
        "histograms": {name: getattr(result, name).to_state() for name in _HISTOGRAMS},
        "requests": packed(result.requests),
    }


def summary(result: RunResult) -> dict[str, Any]:
    """Return the most important numbers. None is unknown: too few, or infinitely late."""
    outcomes = {
        outcome.name.lower(): result.requests.count(outcome) for outcome in Outcome
    }
    measured = measured_seconds(result.requests)
    over_all = seconds_over_all(result.requests)

    def exact(name: str) -> dict[str, Any]:
        return _exact(measured[name], over_all[name])

    return {
        "requests": len(result.requests),
        "outcomes": outcomes,
        "requests_per_second": result.throughput,
        "intended_requests_per_second": result.intended_rate,
        "miss_ratio": result.miss_ratio,
        "latency_seconds": exact("from_intended"),
        "service_seconds": exact("from_send"),
        "dispatch_delay_seconds": _spread(measured["dispatch_delay"]),
        "schedule": _pace(result.requests.intended),
        "sends": _pace(result.requests.sent),
        "first_response_seconds": exact("first_response"),
        "mean_gap_seconds": exact("mean_gap"),
        "between_responses_seconds": _quantiles(result.between_responses),
        "output_tokens": int(result.requests.tokens.sum()),
    }


def text(result: RunResult) -> str:
    """Return the content of its file."""
    return json.dumps(to_document(result), separators=(",", ":"))


def write(result: RunResult, path: Path) -> None:
    """Write the file.

    Raises:
        PlanError: it cannot be written.
    """
    json_file.write(path, text(result))


def read(path: Path) -> RunResult:
    """Return the result of a file.

    Raises:
        PlanError: it cannot be read, or is no run's result of this version.
    """
    return from_document(json_file.read(path), str(path))


def from_document(document: Any, source: str = "the result") -> RunResult:
    """The result that `to_document` described.

    Raises:
        PlanError: it is of another format or version, or contradicts itself.
    """
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise PlanError(f'is not a load run; want "format": "{FORMAT}"', source)
    if document.get("version") != VERSION:
        raise PlanError(
            f"found version {document.get('version')!r}; want {VERSION}", source
        )
    try:
        return json_file.validated(_Document, document, source).result()
    except (LookupError, TypeError, ValueError, zlib.error) as error:
        raise PlanError(
            f"is incomplete: {type(error).__name__}: {error}", source
        ) from None


class _Document(BaseModel, allow_inf_nan=False):
    """The parts of a file that `summary` does not repeat."""

    about: About
    verdict: Verdict
    duration_seconds: PositiveFloat
    sender_cpu_seconds: NonNegativeFloat
    errors: dict[str, NonNegativeInt]
    unanswered: Unanswered = Unanswered()
    histograms: dict[str, dict[str, Any]]
    requests: dict[str, Any]

    def result(self) -> RunResult:
        """Return what it describes.

        Raises:
            LookupError, TypeError, ValueError, zlib.error: it contradicts itself.
        """
        return RunResult(
            about=self.about,
            requests=unpacked(self.requests),
            duration_seconds=self.duration_seconds,
            sender_cpu_seconds=self.sender_cpu_seconds,
            verdict=self.verdict,
            errors=self.errors,
            unanswered=self.unanswered,
            **{
                name: Histogram.from_state(self.histograms[name])
                for name in _HISTOGRAMS
            },
        )


def _pace(instants: Floats) -> dict[str, Any]:
    """Rate and coefficient of variation of the gaps, which is 1 of a Poisson process."""
    gaps = np.diff(np.sort(instants[np.isfinite(instants)]))
    mean = float(gaps.mean()) if gaps.size else 0.0
    return {
        "requests_per_second": 1.0 / mean if mean else None,
        "gap_variation": float(gaps.std()) / mean if mean else None,
    }


def _spread(seconds: Floats) -> dict[str, Any]:
    return {
        "count": seconds.size,
        "mean": float(seconds.mean()) if seconds.size else None,
        "max": float(seconds.max()) if seconds.size else None,
        **{
            f"p{100 * q:g}": {"value": finite(quantile_of(seconds, q))}
            for q in QUANTILES
        },
    }


def _quantiles(histogram: Histogram) -> dict[str, Any]:
    return {
        "count": histogram.count,
        "mean": histogram.sum / histogram.count if histogram.count else None,
        "max": histogram.max,
        **{f"p{100 * q:g}": {"value": histogram.quantile(q)} for q in QUANTILES},
    }


def _exact(measured: Floats, over_all: Floats) -> dict[str, Any]:
    """Count, mean and maximum of what was measured, quantiles over all requests."""
    exact = {f"p{100 * q:g}": _exact_quantile(over_all, q) for q in QUANTILES}
    return _spread(measured) | exact


def _exact_quantile(seconds: Floats, q: float) -> dict[str, Any]:
    side = supported_quantile(seconds, q)
    if side is None:
        return {"value": None, "interval": None}
    ends = [finite(side.low), finite(side.high)]
    known = not side.reason
    return {"value": finite(side.value), "interval": ends if known else None}


def packed(requests: Requests) -> dict[str, Any]:
    """Return every request's times and outcome, exact, as JSON can hold them."""
    columns: dict[str, Any] = {"count": len(requests)}
    for part in fields(Requests):
        array = getattr(requests, part.name)
        wire = array.astype(array.dtype.newbyteorder("<"), copy=False)
        columns[part.name] = base64.b64encode(zlib.compress(wire.tobytes(), 1)).decode()
    return columns


def unpacked(columns: Mapping[str, Any]) -> Requests:
    """The requests that `packed` described.

    Raises:
        ValueError, LookupError, TypeError: it holds something else.
    """
    count = columns["count"]
    if not isinstance(count, int) or not 0 <= count <= MAX_REQUESTS:
        raise ValueError(f"found {count!r} requests; the maximum is {MAX_REQUESTS}")
    arrays = {}
    empty = Requests.empty(0)
    for part in fields(Requests):
        dtype = getattr(empty, part.name).dtype.newbyteorder("<")
        size = count * dtype.itemsize
        inflate = zlib.decompressobj()
        raw = inflate.decompress(base64.b64decode(columns[part.name]), size + 1)
        if len(raw) != size:
            raise ValueError(f"{part.name} does not have {count} entries")
        arrays[part.name] = np.frombuffer(raw, dtype).copy()
    return Requests(**arrays)
