"""Every series of Triton's own that is read, with the versions that have it. Data only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class UpstreamSeries:
    """One series of Triton's metrics page.

    `since` is the first Triton version known to have it; `statistics_field` names the
    number of the statistics API that must agree with it.
    """

    name: str
    since: str
    statistics_field: str


CROSS_CHECKED: Final = (
    UpstreamSeries("nv_inference_request_success", "2.0.0", "success"),
    UpstreamSeries("nv_inference_request_failure", "2.0.0", "failure"),
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
