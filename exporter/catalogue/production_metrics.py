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
    " and calls that Python models make for our probes, unless they are learnt"
    " (`learn_calls`). Failures that Triton counts as successes, such as a Python model's"
    " TritonError, are in outcome success.",
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
    " response cache are not among them.",
    _MODEL,
)
EXECUTIONS: Final = MetricSpec(
    "triton_executions_total",
    "Executions of the model on behalf of production: with dynamic batching one serves"
    " several requests.",
    _MODEL,
)
BUSY: Final = MetricSpec(
    "triton_model_busy_seconds_total",
    "Time the model's instances were executing for production (input, inference and"
    " output phases of batch_stats): each execution counts once.",
    _MODEL,
)
QUEUE: Final = MetricSpec(
    "triton_model_queue_seconds_total",
    "Time production requests waited in the queue, summed over requests.",
    _MODEL,
)
PENDING_REQUESTS: Final = MetricSpec(
    "triton_pending_requests",
    "Requests that wait for an instance of the model now, our own included, as Triton's"
    " metrics page has it. 0 of models that queue inside their backend (vLLM,"
    " TensorRT-LLM).",
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
    "Lookups in Triton's response cache by result (hit, miss), all clients.",
    (*_MODEL, "result"),
    outlives_process=True,
)
BATCH_SIZE: Final = MetricSpec(
    "triton_batch_size",
    "Batch sizes of the executions for production.",
    _MODEL,
    buckets=_BATCH_BOUNDS,
)
OWN_REQUESTS: Final = MetricSpec(
    "triton_own_requests_total",
    "This process's own requests to the model by the outcome that it saw (success,"
    " failure); steps of ensembles are counted where the whole succeeded.",
    (*_MODEL, "outcome"),
)
WATCHER_UP: Final = MetricSpec(
    "tritonwatch_watcher_up",
    "1 while another sidecar (`watchers` of the collector `statistics`) can be read; while"
    " it is 0, that sidecar's requests count as production.",
    ("watcher",),
)
UNATTRIBUTED_REQUESTS: Final = MetricSpec(
    "triton_unattributed_requests_total",
    "Requests that Triton counted and that are production's or ours, which nobody can"
    " tell: they are not in triton_requests_total. Production is at least that and at"
    " most both together.",
    _MODEL,
)
FAILURES_BOOKED_AS_SUCCESS: Final = MetricSpec(
    "triton_failures_booked_as_success_total",
    "Own requests that the model answered with an error and that Triton counted as a"
    " success. While it rises, production's failures are among its successes and their"
    " times in its latency.",
    _MODEL,
)
OUTCOMES_DOUBTFUL: Final = MetricSpec(
    "triton_request_outcomes_doubtful",
    "1 if within ten minutes Triton counted a failure of the model as a success"
    " (triton_failures_booked_as_success_total): its failure ratio and its latency"
    " quantiles look better than they are.",
    _MODEL,
)
STATISTICS_RESETS: Final = MetricSpec(
    "triton_statistics_resets_total",
    "Times the model's statistics were seen to start over: reload or restart.",
    _MODEL,
)
SEVERAL_SERVERS: Final = MetricSpec(
    "triton_several_servers",
    "1 if reads of the statistics on new connections were answered, twice within ten"
    " minutes, by another server than the one that is watched: all that is counted is one"
    " server's, and wrong. 0 where none was seen; absent until that was tried.",
)
STATISTICS_DISAGREEMENT: Final = MetricSpec(
    "triton_statistics_disagreement_ratio",
    "How far the counter on Triton's own /metrics rose apart from the statistics API"
    " since both were first compared or last started over, relative to the latter's"
    " rise. 0 is agreement.",
    (*_MODEL, "counter"),
)
