"""Tokens, and metrics that backends report on Triton's metrics page."""

from __future__ import annotations

from typing import Final

from exporter.catalogue.shared import LATENCY_BOUNDS as _LATENCY_BOUNDS
from exporter.catalogue.shared import MODEL as _MODEL
from exporter.samples import MetricSpec

_FROM_PAGE: Final = " Our own requests included; from {}."

BACKEND_RUNNING: Final = MetricSpec(
    "triton_backend_requests_running",
    "Requests that the backend executes now."
    + _FROM_PAGE.format(
        "vllm:num_requests_running, or nv_trt_llm_request_metrics of type active"
    ),
    _MODEL,
)
BACKEND_WAITING: Final = MetricSpec(
    "triton_backend_requests_waiting",
    "Requests that wait in the backend's own queue."
    + _FROM_PAGE.format(
        "vllm:num_requests_waiting, or nv_trt_llm_request_metrics of type waiting"
    ),
    _MODEL,
)
BACKEND_KV_CACHE: Final = MetricSpec(
    "triton_backend_kv_cache_usage_ratio",
    "Part of the KV cache in use, 0 to 1."
    + _FROM_PAGE.format(
        "vllm:kv_cache_usage_perc, or nv_trt_llm_kv_cache_block_metrics of type fraction"
    ),
    _MODEL,
)
BACKEND_PREEMPTIONS: Final = MetricSpec(
    "triton_backend_preemptions_total",
    "Requests that lost their place in the KV cache and start over."
    + _FROM_PAGE.format("vllm:num_preemptions_total"),
    _MODEL,
    outlives_process=True,
)
BACKEND_PREFIX_QUERIES: Final = MetricSpec(
    "triton_backend_prefix_cache_queries_total",
    "Prompt tokens looked up in the prefix cache."
    + _FROM_PAGE.format("vllm:prefix_cache_queries_total"),
    _MODEL,
    outlives_process=True,
)
BACKEND_PREFIX_HITS: Final = MetricSpec(
    "triton_backend_prefix_cache_hits_total",
    "Prompt tokens found in the prefix cache."
    + _FROM_PAGE.format("vllm:prefix_cache_hits_total"),
    _MODEL,
    outlives_process=True,
)
BACKEND_TOKENS: Final = MetricSpec(
    "triton_backend_tokens_total",
    "Tokens by direction (input, output) of all clients."
    + _FROM_PAGE.format(
        "vllm:prompt_tokens_total and vllm:generation_tokens_total, or the sums of"
        " nv_llm_input_token_len and nv_llm_output_token_len"
    )
    + " triton_tokens_total is production's part.",
    (*_MODEL, "direction"),
    outlives_process=True,
)
BACKEND_VALUE: Final = MetricSpec(
    "triton_backend_value",
    "Gauge of a backend or Python model on Triton's metrics page, by the name that"
    " `backend_metrics` gives it. Triton does not check what models report.",
    (*_MODEL, "name"),
)
BACKEND_COUNT: Final = MetricSpec(
    "triton_backend_count_total",
    "Counter of a backend or Python model on Triton's metrics page, by the name that"
    " `backend_metrics` gives it. Starts over with the model.",
    (*_MODEL, "name"),
    outlives_process=True,
)
REQUEST_FAILURES: Final = MetricSpec(
    "triton_request_failures_total",
    "Failed requests by reason (REJECTED, CANCELED, BACKEND, OTHER), our own included,"
    " as nv_inference_request_failure on Triton's metrics page.",
    (*_MODEL, "reason"),
    outlives_process=True,
)
SERVER_FIRST_RESPONSE: Final = MetricSpec(
    "triton_server_first_response_seconds",
    "Time to the first response as Triton measures it, own requests included:"
    " nv_inference_first_response_histogram_ms, from Triton 2.52 on with"
    " --metrics-config histogram_latencies=true. Absent for models without it.",
    _MODEL,
    buckets=(0.1, 0.5, 2.0, 5.0),
    outlives_process=True,
)
PAGE_REFUSED: Final = MetricSpec(
    "tritonwatch_metrics_page_refused_total",
    "Lines of Triton's metrics page that were needed and could not be used, by"
    " reason: malformed, too_long, too_many, value (not finite or implausible),"
    " duplicate, foreign_labels (a model registered a series under one of Triton's"
    " own names), bounds (a histogram of first responses that lacks one of Triton's"
    " default bounds).",
    ("reason",),
)
TOKENS: Final = MetricSpec(
    "triton_tokens_total",
    "Production's tokens by direction (input, output) since this process first saw the"
    " model, from the best available source: backend (metrics of the backend, own probes"
    " excluded), answers (requests times the mean of the mirrored answers that report"
    " their tokens), responses (requests times the mean number of responses of those"
    " traced, for models in `token_responses`), estimate (requests times"
    " `token_estimates`). The sum over sources is the total.",
    (*_MODEL, "direction", "source"),
)
TOKENS_OWN_UNKNOWN: Final = MetricSpec(
    "triton_own_requests_tokens_unknown_total",
    "Own requests for which it is unknown how many tokens the backend counted: answers"
    " without num_input_tokens or num_output_tokens, failures, timeouts. Their tokens may"
    " be in triton_tokens_total; while this stays constant, none are.",
    (*_MODEL, "direction"),
)
TIME_PER_TOKEN: Final = MetricSpec(
    "triton_request_time_per_output_token_seconds",
    "Mean time between output tokens of one traced, streamed client request after"
    " its first; one value per request. Its inverse is the tokens per second that"
    " the user sees. For models in `token_responses`, whose responses are one token"
    " each.",
    _MODEL,
    buckets=_LATENCY_BOUNDS,
)
TOKEN_ENERGY: Final = MetricSpec(
    "triton_token_energy_joules",
    "Energy per output token of production over the sliding window: the model's"
    " energy, prompts included, divided by its output tokens; basis as in"
    " triton_inference_energy_joules. Absent if either is unknown for part of the"
    " window, and for decoupled models whose backend does not report its times,"
    " since Triton's statistics do not show how long these work.",
    (*_MODEL, "boundary", "source", "basis"),
)
COST_PER_THOUSAND_TOKENS: Final = MetricSpec(
    "triton_model_cost_per_thousand_tokens",
    "Cost of 1,000 output tokens of production over the sliding window; absent when"
    " triton_token_energy_joules is; basis as in"
    " triton_model_cost_per_thousand_inferences.",
    (*_MODEL, "currency", "basis"),
)
CARBON_PER_THOUSAND_TOKENS: Final = MetricSpec(
    "triton_model_carbon_per_thousand_tokens_grams",
    "CO2 equivalent of 1,000 output tokens of production over the sliding window:"
    " their energy at all boundaries, times cost.pue and the carbon intensity of the"
    " grid.",
    (*_MODEL, "basis"),
)
