"""Our own probes."""

from __future__ import annotations

from typing import Final

from exporter.catalogue.probe_outcomes import MEANINGS as _MEANINGS
from exporter.catalogue.shared import LATENCY_BOUNDS as _LATENCY_BOUNDS
from exporter.catalogue.shared import MODEL as _MODEL
from exporter.catalogue.shared import PROBE as _PROBE
from exporter.samples import MetricSpec

_SHOWN_OUTCOMES: Final = ", ".join(
    f"{outcome} ({meaning.text})" if meaning.text else outcome
    for outcome, meaning in _MEANINGS.items()
)
PROBE_DURATION: Final = MetricSpec(
    "triton_probe_duration_seconds",
    "Duration of probe requests. A timeout counts with the time waited, so a"
    " quantile equal to the timeout is a lower bound.",
    _PROBE,
    buckets=_LATENCY_BOUNDS,
)
PROBE_FIRST_RESPONSE: Final = MetricSpec(
    "triton_probe_first_response_seconds",
    "Time from a probe request to the first response of a decoupled model.",
    _PROBE,
    buckets=_LATENCY_BOUNDS,
)
PROBE_RESPONSE_GAP: Final = MetricSpec(
    "triton_probe_response_gap_seconds",
    "Time between consecutive responses of a decoupled model to a probe.",
    _PROBE,
    buckets=_LATENCY_BOUNDS,
)
PROBE_TOTAL: Final = MetricSpec(
    "triton_probe_total",
    f"Probe requests by outcome: {_SHOWN_OUTCOMES}.",
    (*_PROBE, "outcome"),
)
PROBE_LATENCY: Final = MetricSpec(
    "triton_probe_latency_seconds",
    "Latency quantile of the probes in the sliding window. Absent if there are too"
    " few probes for the quantile.",
    (*_PROBE, "quantile"),
)
PROBE_SUCCESS: Final = MetricSpec(
    "triton_probe_success",
    "1 if the latest probe was ok, else 0. Absent after the outcomes cached,"
    " backlog and unjudged; the outcome late changes nothing.",
    _PROBE,
)
PROBE_LAST_DURATION: Final = MetricSpec(
    "triton_probe_last_duration_seconds",
    "Duration of the request of this probe; on /probe only.",
    _PROBE,
    on_probe_only=True,
)
BLACKBOX_SUCCESS: Final = MetricSpec(
    "probe_success",
    "1 if the target answered and every ready model was probed and serves; 0 also if"
    " one was not judged (probe_models_unjudged). On /probe only; the name is that"
    " of blackbox_exporter.",
    on_probe_only=True,
)
BLACKBOX_JUDGED: Final = MetricSpec(
    "probe_models_judged",
    "Model versions of the target that were probed over every protocol; on /probe only.",
    on_probe_only=True,
)
BLACKBOX_UNJUDGED: Final = MetricSpec(
    "probe_models_unjudged",
    "Ready model versions of the target that were not probed over every protocol,"
    " because their metadata could not be read or time ran out, or whose response cache"
    " answered; on /probe only.",
    on_probe_only=True,
)
BLACKBOX_DURATION: Final = MetricSpec(
    "probe_duration_seconds",
    "Duration of the whole probe of the target; on /probe only.",
    on_probe_only=True,
)
PROBE_INTERVAL: Final = MetricSpec(
    "triton_probe_interval_seconds",
    "Current time between two probes of a model: the configured interval, longer if"
    " the rate limit does not allow it for all models.",
    ("probe",),
)
OWN_UNRESOLVED: Final = MetricSpec(
    "tritonwatch_own_requests_unresolved_total",
    "Own requests that were never answered: Triton may have counted them as"
    " production traffic.",
    _MODEL,
)
