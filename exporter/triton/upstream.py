"""Every series of Triton's own that is read, with the versions that have it. Data only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple


@dataclass(frozen=True, slots=True)
class UpstreamSeries:
    """One series of Triton's metrics page.

    `since` is the first Triton version known to have it; `statistics_field` names the
    number of the statistics API that must agree with it.
    """

    name: str
    since: str
    statistics_field: str


FAILURES: Final = "nv_inference_request_failure"
FAILURE_REASONS: Final = ("REJECTED", "CANCELED", "BACKEND", "OTHER")
CROSS_CHECKED: Final = (
    UpstreamSeries("nv_inference_request_success", "2.0.0", "success"),
    UpstreamSeries(FAILURES, "2.0.0", "failure"),
    UpstreamSeries("nv_inference_count", "2.0.0", "inferences"),
    UpstreamSeries("nv_inference_exec_count", "2.0.0", "executions"),
)
PENDING: Final = UpstreamSeries("nv_inference_pending_request_count", "2.51.0", "")
"""Requests that wait for an instance, ours included."""
PLACEMENT: Final = UpstreamSeries(
    "nv_inference_compute_infer_duration_us", "2.0.0", "compute_infer"
)
"""Busy time with gpu_uuid for instances on a GPU: where a model ran."""
GPU_POWER: Final = UpstreamSeries("nv_gpu_power_usage", "2.0.0", "")
GPU_POWER_LIMIT: Final = UpstreamSeries("nv_gpu_power_limit", "2.0.0", "")
GPU_ENERGY: Final = UpstreamSeries("nv_energy_consumption", "2.0.0", "")
GPU_UTILIZATION: Final = UpstreamSeries("nv_gpu_utilization", "2.0.0", "")
GPU_MEMORY_USED: Final = UpstreamSeries("nv_gpu_memory_used_bytes", "2.0.0", "")
GPU_MEMORY_TOTAL: Final = UpstreamSeries("nv_gpu_memory_total_bytes", "2.0.0", "")

FIRST_RESPONSE: Final = UpstreamSeries(
    "nv_inference_first_response_histogram_ms", "2.52.0", ""
)
"""Only with `--metrics-config histogram_latencies=true`; of decoupled models before 2.66."""
FIRST_RESPONSE_BOUNDS_MS: Final = (100.0, 500.0, 2000.0, 5000.0)
OWN_LABELS: Final = frozenset({"model", "version", "gpu_uuid"})
"""Labels of Triton's own series by model, besides `_tag` of a model's `metric_tags`."""


class BackendSeries(NamedTuple):
    """One series that a backend registers. `label` is one that it must have."""

    name: str
    field: str
    label: tuple[str, str] = ("", "")


BACKEND: Final = (
    BackendSeries("vllm:num_requests_running", "running"),
    BackendSeries("vllm:num_requests_waiting", "waiting"),
    BackendSeries("vllm:kv_cache_usage_perc", "kv_cache"),
    # Before vLLM 0.9.
    BackendSeries("vllm:gpu_cache_usage_perc", "kv_cache"),
    BackendSeries("vllm:num_preemptions_total", "preemptions"),
    BackendSeries("vllm:prefix_cache_queries_total", "prefix_queries"),
    BackendSeries("vllm:prefix_cache_hits_total", "prefix_hits"),
    BackendSeries("vllm:prompt_tokens_total", "input"),
    BackendSeries("vllm:generation_tokens_total", "output"),
    BackendSeries("vllm:time_to_first_token_seconds_sum", "first_seconds"),
    BackendSeries("vllm:time_per_output_token_seconds_sum", "token_seconds"),
    BackendSeries("nv_trt_llm_request_metrics", "running", ("request_type", "active")),
    BackendSeries("nv_trt_llm_request_metrics", "waiting", ("request_type", "waiting")),
    BackendSeries(
        "nv_trt_llm_kv_cache_block_metrics",
        "kv_cache",
        ("kv_cache_block_type", "fraction"),
    ),
    BackendSeries("nv_llm_input_token_len_sum", "input"),
    BackendSeries("nv_llm_output_token_len_sum", "output"),
)
