"""Our own probes."""

from __future__ import annotations

from typing import Final

from exporter.catalogue.shared import LATENCY_BOUNDS as _LATENCY_BOUNDS
from exporter.catalogue.shared import MODEL as _MODEL
from exporter.catalogue.shared import PROBE as _PROBE
from exporter.samples import MetricSpec

PROBE_DURATION: Final = MetricSpec(
    "triton_probe_duration_seconds",
    "Time of a probe's request on the wire. A timeout counts with the time waited, so"
    " a quantile that reaches the timeout reads 'at least'.",
    _PROBE,
    buckets=_LATENCY_BOUNDS,
)
PROBE_FIRST_RESPONSE: Final = MetricSpec(
    "triton_probe_first_response_seconds",
    "Time from a probe's request to the first response of a decoupled model, on the wire.",
    _PROBE,
    buckets=_LATENCY_BOUNDS,
)
PROBE_RESPONSE_GAP: Final = MetricSpec(
    "triton_probe_response_gap_seconds",
    "Time from each response to a probe of a decoupled model to the next one.",
    _PROBE,
    buckets=_LATENCY_BOUNDS,
)
PROBE_TOTAL: Final = MetricSpec(
    "triton_probe_total",
    "Probe requests by outcome: ok, timeout, unavailable, invalid, model_error,"
    " bad_output, cached (a response cache answered, which proves nothing), backlog"
    " (waits behind other clients' sequences, which the model executes), late (no answer"
    " in time, but tritonwatch itself could not run meanwhile), stalled (a whole streamed"
    " answer with a response later than max_first_response_seconds or max_gap_seconds"
    " allow; the model counts as serving).",
    (*_PROBE, "outcome"),
)
PROBE_LATENCY: Final = MetricSpec(
    "triton_probe_latency_seconds",
    "Latency quantile of the probes of the sliding window. Absent where the number of"
    " probes cannot support the quantile.",
    (*_PROBE, "quantile"),
)
PROBE_SUCCESS: Final = MetricSpec(
    "triton_probe_success",
    "1 if the latest probe was ok, else 0. Absent after outcome cached or backlog;"
    " outcome late changes nothing.",
    _PROBE,
)
PROBE_LAST_DURATION: Final = MetricSpec(
    "triton_probe_last_duration_seconds",
    "Time of the request of this one probe; on /probe only.",
    _PROBE,
    on_probe_only=True,
)
BLACKBOX_SUCCESS: Final = MetricSpec(
    "probe_success",
    "1 if the target answered and every model it lists as ready was asked and was ok;"
    " 0 also where one was not asked (probe_models_unjudged). On /probe only, named as"
    " blackbox_exporter does.",
    on_probe_only=True,
)
BLACKBOX_JUDGED: Final = MetricSpec(
    "probe_models_judged",
    "Model versions of the target that this probe asked by every protocol; on /probe only.",
)
BLACKBOX_UNJUDGED: Final = MetricSpec(
    "probe_models_unjudged",
    "Ready model versions of the target that this probe did not ask, or not by every"
    " protocol, because their metadata could not be read or time ran out; on /probe only.",
)
BLACKBOX_DURATION: Final = MetricSpec(
    "probe_duration_seconds",
    "Time the whole look at the target took; on /probe only.",
    on_probe_only=True,
)
PROBE_INTERVAL: Final = MetricSpec(
    "triton_probe_interval_seconds",
    "Time between two probes of one model as it is kept now: the configured interval,"
    " stretched when the rate limit does not allow it for all models.",
    ("probe",),
)
OWN_UNRESOLVED: Final = MetricSpec(
    "tritonwatch_own_requests_unresolved_total",
    "Own requests that never got an answer: Triton may or may not have counted them"
    " as production traffic.",
    _MODEL,
)
