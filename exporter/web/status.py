"""Data of /api/v1/status, which the page at / shows."""

from __future__ import annotations

import math
import platform
from dataclasses import asdict
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from exporter import catalogue
from exporter.config import logs
from exporter.features.slo.objectives import expanded
from exporter.samples import HistogramSample, Sample, labels_of
from exporter.status.status_findings import STATES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from exporter.access.inventory import ModelKey
    from exporter.app import Sidecar
    from exporter.runtime.probe_meter import TargetStatus
    from exporter.samples import AnySample, MetricSpec

# Read once: an update of the package removes it for a moment.
_VERSION: Final = version("tritonwatch")


def document(sidecar: Sidecar) -> dict[str, Any]:
    """The state of everything as JSON-able values; holds no header and no secret."""
    inventory = sidecar.access.board.current
    info = inventory.info
    serving = sidecar.serving()
    samples = list(sidecar.samples())
    judgement = sidecar.judged(samples)
    shown = series(samples)
    models = {entry.name for entry in inventory.index}
    document = {
        "tritonwatch": {
            "version": _VERSION,
            "python": platform.python_version(),
            "started_timestamp_seconds": sidecar.started_at,
        },
        "target": sidecar.config.target.model_dump(
            include={"kind", "url", "grpc", "http", "metrics"}
        ),
        "server": {
            "up": inventory.up if judgement.is_fresh else None,
            "ready": inventory.ready if judgement.is_fresh else None,
            **{of: getattr(info, of, None) for of in ("name", "product", "version")},
        },
        "findings": [asdict(finding) for finding in judgement.findings],
        "models": sorted(
            (
                {
                    "model": entry.name,
                    "version": entry.version,
                    **asdict(judgement.states[entry.name, entry.version]),
                    "ready": inventory.is_ready(entry),
                    "reason": entry.reason,
                    "serving": serving.get((entry.name, entry.version)),
                }
                for entry in inventory.index
                if (entry.name, entry.version) in judgement.states
            ),
            key=lambda model: STATES.index(model["state"]),
        ),
        "objectives": [
            {
                "slo": objective.name,
                "models": sorted(filter(objective.matches, models)),
            }
            for objective in expanded(sidecar.config.slos)
        ],
        "probes": [
            {
                "probe": runner.meter.name,
                "model": status.target.key[0],
                "version": status.target.key[1],
                "protocol": status.target.protocol,
                "outcome": status.verdict.outcome,
                "duration_seconds": status.verdict.duration_seconds,
                "detail": status.verdict.detail,
            }
            for runner in sidecar.probe_runners
            for status in sorted(runner.results.statuses(), key=_by_model)
        ],
        "collectors": [
            {
                "collector": runner.meter.name,
                "success": runner.meter.statistics.success,
                "duration_seconds": runner.meter.statistics.duration_seconds,
                "failure": runner.meter.statistics.failure,
                "last_success_timestamp_seconds": runner.meter.statistics.last_success_timestamp_seconds,
            }
            for runner in sidecar.runners
        ],
        "series": shown,
        "truncated": truncated(shown),
        "events": logs.recent(),
        **sidecar.sections(),
    }
    found: dict[str, Any] = finite(document)
    return found


def _by_model(status: TargetStatus) -> tuple[ModelKey, str]:
    return status.target.key, status.target.protocol


MAX_SERIES: Final = 2_000
"""Limit of series of one metric; more are not drawn, and this is reported."""

SHOWN: Final[frozenset[MetricSpec]] = frozenset(
    {
        catalogue.REQUESTS,
        catalogue.INFERENCES,
        catalogue.BUSY,
        catalogue.REQUEST_LATENCY,
        catalogue.REQUEST_LATENCY_CI,
        catalogue.REQUEST_LATENCY_EFFECTIVE,
        catalogue.REQUEST_PHASE_DURATION,
        catalogue.FIRST_RESPONSE_LATENCY,
        catalogue.FIRST_RESPONSE_LATENCY_CI,
        catalogue.RESPONSE_GAP_LATENCY,
        catalogue.RESPONSE_GAP_LATENCY_CI,
        catalogue.RESPONSES,
        catalogue.BACKEND_WAITING,
        catalogue.BACKEND_KV_CACHE,
        catalogue.TOKEN_ENERGY,
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
        catalogue.MODEL_ENERGY_ERROR,
        catalogue.EFFICIENCY,
        catalogue.COST_PER_THOUSAND,
        catalogue.GOLDEN_BASELINE,
        catalogue.GOLDEN_FAILING,
        catalogue.GOLDEN_SCORE,
        catalogue.GOLDEN_SCORE_CI,
        catalogue.ESTIMATED_ACCURACY,
        catalogue.ESTIMATED_ACCURACY_CI,
        catalogue.ESTIMATED_ACCURACY_VALID,
        catalogue.SPC_ALARM,
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
            entries.append({**labels_of(sample), **_numbers(sample)})
    return found


def _numbers(sample: AnySample) -> dict[str, float]:
    if isinstance(sample, HistogramSample):
        return {"sum": sample.histogram.sum, "count": sample.histogram.count}
    assert isinstance(sample, Sample)  # noqa: S101 - the other kinds are not shown
    return {"value": float(sample.value)}


def finite(value: Any) -> Any:
    """Return the document with None for numbers that JSON cannot hold."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def truncated(shown: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Metrics of which not every series is shown."""
    return [name for name, entries in shown.items() if len(entries) >= MAX_SERIES]
