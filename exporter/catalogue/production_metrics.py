"""Production traffic from the statistics API, our own requests taken out."""

from __future__ import annotations

from typing import Final

from exporter.catalogue.shared import BATCH_BOUNDS as _BATCH_BOUNDS
from exporter.catalogue.shared import MODEL as _MODEL
from exporter.samples import MetricSpec

REQUESTS: Final = MetricSpec(
    "triton_requests_total",
    "Production requests by outcome (success, failure) since this process first saw"
    " the model; own probes are taken out. Still includes inference requests of other"
    " watchers (blackbox_exporter, Kubernetes probes, a sidecar not listed in `watchers`)"
    " and calls that Python models make to answer own probes, unless these are declared"
    " (triton_model_calls_undeclared). Failures that Triton counts as successes are in"
    " outcome success: a Python model's TritonError, and for decoupled models that answer"
    " from a thread (vLLM) all errors and cancellations. Triton counts a failed request to"
    " an ensemble as two failures.",
    (*_MODEL, "outcome"),
)
CLIENT_REQUESTS: Final = MetricSpec(
    "triton_client_requests_total",
    "Requests by the outcome that their clients saw (success, failure, abandoned: the"
    " client left before the answer) and by source: access_log (of nginx or Envoy; every"
    " request through the proxy) or mirror (answers that a logger sends as CloudEvents, of"
    " those read; only of models of which it sent an error; requests that a proxy mirrors"
    " have no answer); own requests are left out where they"
    " name themselves. Includes failures that Triton counts as successes, and requests"
    " that it refuses.",
    (*_MODEL, "outcome", "source"),
)
INFERENCES: Final = MetricSpec(
    "triton_inferences_total",
    "Production inferences: a request with a batch of n counts n. Answers from the"
    " response cache are not included.",
    _MODEL,
)
EXECUTIONS: Final = MetricSpec(
    "triton_executions_total",
    "Executions of the model for production: with dynamic batching one execution"
    " serves several requests.",
    _MODEL,
)
BUSY: Final = MetricSpec(
    "triton_model_busy_seconds_total",
    "Time the model's instances spent executing for production (input, inference"
    " and output phases of batch_stats). Each execution counts once; for an ensemble"
    " Triton adds the executions of its steps, once for each request.",
    _MODEL,
)
QUEUE: Final = MetricSpec(
    "triton_model_queue_seconds_total",
    "Time that production requests waited in the queue, summed over requests.",
    _MODEL,
)
PENDING_REQUESTS: Final = MetricSpec(
    "triton_pending_requests",
    "Requests that wait for an instance of the model now, own requests included,"
    " from Triton's metrics page. 0 for models that queue inside their backend"
    " (vLLM, TensorRT-LLM).",
    _MODEL,
)
REQUEST_SECONDS: Final = MetricSpec(
    "triton_model_request_seconds_total",
    "Time of successful production requests inside the server, summed over requests.",
    _MODEL,
)
COMPUTE: Final = MetricSpec(
    "triton_model_compute_seconds_total",
    "Time of production requests by phase (compute_input, compute_infer,"
    " compute_output), summed over requests.",
    (*_MODEL, "phase"),
)
CACHE: Final = MetricSpec(
    "triton_response_cache_total",
    "Lookups in Triton's response cache by result (hit, miss), of all clients.",
    (*_MODEL, "result"),
    outlives_process=True,
)
BATCH_SIZE: Final = MetricSpec(
    "triton_batch_size",
    "Batch sizes of executions for production.",
    _MODEL,
    buckets=_BATCH_BOUNDS,
)
OWN_REQUESTS: Final = MetricSpec(
    "triton_own_requests_total",
    "Requests of this process to the model by outcome (success, failure). Steps of"
    " an ensemble count if the whole request succeeded.",
    (*_MODEL, "outcome"),
)
WATCHER_UP: Final = MetricSpec(
    "tritonwatch_watcher_up",
    "1 if another sidecar (`watchers` of the collector `statistics`) can be read,"
    " else 0. While it is 0, the requests of that sidecar count as production.",
    ("watcher",),
)
UNATTRIBUTED_REQUESTS: Final = MetricSpec(
    "triton_unattributed_requests_total",
    "Requests that Triton counted and that may be production's or our own. They are"
    " not in triton_requests_total: production is between that and the sum of both.",
    _MODEL,
)
FAILURES_BOOKED_AS_SUCCESS: Final = MetricSpec(
    "triton_failures_booked_as_success_total",
    "Own requests that the model answered with an error and that Triton counted as"
    " a success. While this rises, triton_requests_total counts failures of"
    " production as successes too, and latencies include theirs.",
    _MODEL,
)
CALLS_UNDECLARED: Final = MetricSpec(
    "triton_model_calls_undeclared",
    "1 if the model gets own requests and can call other models (Python backend), but"
    " `calls` of the collector `statistics` does not declare which: any calls it makes to"
    " answer own requests are in triton_requests_total of the models that it calls."
    " 0 if declared.",
    _MODEL,
)
OUTCOMES_DOUBTFUL: Final = MetricSpec(
    "triton_request_outcomes_doubtful",
    "1 if Triton counted a failure of the model as a success in the last ten"
    " minutes (triton_failures_booked_as_success_total): its failure ratio and"
    " latency quantiles look better than they are.",
    _MODEL,
)
STATISTICS_RESETS: Final = MetricSpec(
    "triton_statistics_resets_total",
    "Times the model's statistics started over, after a reload or restart.",
    _MODEL,
)
SEVERAL_SERVERS: Final = MetricSpec(
    "triton_several_servers",
    "1 if new connections to the target reached another server than the watched"
    " one, twice within ten minutes: counts are then wrong, because they belong to"
    " several servers. 0 if only one was seen; absent until that was tested.",
)
SERVER_CHANGES: Final = MetricSpec(
    "triton_server_changes_total",
    "Times the name of the target came to stand for another address, so for another"
    " server. Its requests count as production from its first read on.",
)
STATISTICS_DISAGREEMENT: Final = MetricSpec(
    "triton_statistics_disagreement_ratio",
    "Difference between the increase of a counter on Triton's metrics page and in"
    " the statistics API since both were first compared or last started over,"
    " relative to the latter. 0 means that they agree, not that they are correct: of"
    " decoupled models that answer from a thread both count errors and cancellations as"
    " successes.",
    (*_MODEL, "counter"),
)
