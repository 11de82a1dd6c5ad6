"""The numbers of /metrics that the status page draws, by name."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from exporter import catalogue
from exporter.samples import HistogramSample, Sample

if TYPE_CHECKING:
    from collections.abc import Iterable

    from exporter.samples import AnySample, MetricSpec

MAX_SERIES: Final = 2_000
"""Of one metric; what is beyond is not drawn, and said so."""

SHOWN: Final[frozenset[MetricSpec]] = frozenset(
    {
        catalogue.REQUESTS,
        catalogue.INFERENCES,
        catalogue.BUSY,
        catalogue.REQUEST_LATENCY,
        catalogue.REQUEST_LATENCY_CI,
        catalogue.REQUEST_PHASE_DURATION,
        catalogue.PROBE_LATENCY,
        catalogue.SLO_OBJECTIVE,
        catalogue.SLO_BURN_RATE,
        catalogue.SLO_BUDGET,
        catalogue.FEATURE_DRIFT_SCORE,
        catalogue.FEATURE_DRIFT_EVIDENCE,
        catalogue.FEATURE_DRIFT_ALARM,
        catalogue.MODEL_DRIFT_ALARM,
        catalogue.MODEL_DRIFT_EVIDENCE,
        catalogue.MODEL_DRIFT_THRESHOLD,
        catalogue.GPU_POWER,
        catalogue.HOST_POWER,
        catalogue.INFERENCE_ENERGY,
        catalogue.EFFICIENCY,
        catalogue.COST_PER_THOUSAND,
        catalogue.GOLDEN_FAILING,
        catalogue.GOLDEN_SCORE,
        catalogue.SPC_ALARM,
        catalogue.COMPARISON_EFFECT,
        catalogue.COMPARISON_VERDICT,
        catalogue.COMPARISON_WAIT,
        catalogue.RUN_INFO,
    }
)


def series(samples: Iterable[AnySample]) -> dict[str, list[dict[str, Any]]]:
    """Every shown series as its labels and `value`; of a histogram `sum` and `count`.

    These are the very values that a scrape at this moment would have.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for sample in samples:
        if sample.spec not in SHOWN:
            continue
        entries = found.setdefault(sample.spec.name, [])
        if len(entries) < MAX_SERIES:
            labels = dict(zip(sample.spec.labels, sample.labels, strict=True))
            entries.append({**labels, **_numbers(sample)})
    return found


def _numbers(sample: AnySample) -> dict[str, float]:
    if isinstance(sample, HistogramSample):
        return {"sum": sample.histogram.sum, "count": sample.histogram.count}
    assert isinstance(sample, Sample)  # noqa: S101 - the other kinds are not shown
    return {"value": float(sample.value)}


def finite(value: Any) -> Any:
    """The document with None for what JSON has no number for."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def truncated(shown: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Metrics of which not every series is shown."""
    return [name for name, entries in shown.items() if len(entries) >= MAX_SERIES]
