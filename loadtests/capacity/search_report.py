"""A capacity search as data: the JSON report, whose schema is published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field

from exporter.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT: Final = "tritonwatch-load-capacity"
_GONE: Final = {
    *("closed_loop", "instances", "knee", "mlperf", "usl"),
    *("in_system", "littles_law_holds", "rate_times_latency"),  # of levels
    "end_p50",  # of the reference
}
Ending = Literal["precise", "budget", "no_rate_holds", "every_rate_holds", "stopped"]


class Bounds(Settings):
    """An estimate and its 95 % interval; an end is null where it is open."""

    estimate: float
    low: float | None
    high: float | None


class Capacity(Settings):
    """The highest rate that holds the objective."""

    requests_per_second: Bounds
    by_term: dict[str, float | None]
    """The rate at which each term alone is reached; null where it never was."""
    dispersion: float | None
    """Variance of a block's misses over that of independent requests."""
    blocks: int
    """Blocks near the boundary, of which the interval is made."""
    effective_requests: float | None = None
    """Independent requests near the boundary that would give as wide an interval."""
    method: str = "isotonic fit, residual block bootstrap"
    """Method of the estimate."""


class Quantiles(Settings):
    """Latency from the intended send in seconds; null where misses leave it open."""

    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None
    p999: float | None


class PhaseSeconds(Settings):
    """Mean seconds of a request in the server."""

    queue: float
    compute_input: float
    compute_infer: float
    compute_output: float


class Level(Settings):
    """All runs at one rate."""

    requests_per_second: float
    """Offered."""
    runs: int
    requests: int
    """Number of requests after the warm-up."""
    throughput: float
    """Correct answers per second."""
    throughput_deviation: float | None
    """Standard deviation between the runs; null for one run."""
    shares: dict[str, float]
    """Share of requests that missed each term."""
    share_deviations: dict[str, float | None]
    """Standard deviation of it between the runs."""
    latency: Quantiles
    """Latency over all requests; one without a correct answer is infinitely late."""
    p99_deviation: float | None
    """Standard deviation of p99 between the runs."""
    phases: PhaseSeconds | None
    """Phases from Triton's statistics."""
    mean_batch: float | None
    busy: float | None
    """Executions under way on average."""
    server_cpu: float | None
    """Processors the server used, where it runs on the sender's machine."""
    sender_cpu: float | None
    """Processors the sender used."""
    warmup_seconds: float
    """Longest that was left out at the start of a run."""
    settled: bool
    """True if every run settled."""
    runs_with_reasons: int
    """Runs that were disturbed and counted nevertheless."""


class Reference(Settings):
    """One request at a time, before everything else."""

    start_p50: float | None


class SaturationReport(Settings):
    """The saturated resource at the boundary."""

    resource: str
    evidence: str


class Headroom(Settings):
    """Capacity that production leaves; null where the search is invalid."""

    production_requests_per_second: float
    ratio: float


class CapacityReport(Settings):
    """Result of `tritonwatch load capacity`."""

    format: Literal["tritonwatch-load-capacity"] = "tritonwatch-load-capacity"
    version: Literal[1] = 1
    model: str
    """The models of the mix, joined by commas."""
    slo: str
    conclusion: str
    """The result in a sentence."""
    ending: Ending
    capacity: Capacity | None
    """Null where no rate holds, or the boundary was not reached."""
    valid: bool
    reasons: tuple[str, ...] = Field(default=())
    """Reasons against the numbers."""
    warnings: tuple[str, ...] = Field(default=())
    reference: Reference
    levels: tuple[Level, ...]
    saturation: SaturationReport
    headroom: Headroom | None = Field(default=None)
    repetitions: int
    """Runs within one level (6 %) of the boundary, on either side."""
    rejected_runs: int
    """Runs that were disturbed, and made again."""
    spent_seconds: float
    started_at: float
    """Unix time."""
    seed: int
    protocol: str
    address: str
    payload_sha256: str
    schedule_sha256: str
    """SHA-256 of the arrival times of all runs, in order."""
    settings: dict[str, Any]
    hardware: dict[str, Any]
    versions: dict[str, str]


def without_removed(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a report of tritonwatch 0.1 without the parts that were removed since."""
    kept = _kept(document)
    if isinstance(levels := kept.get("levels"), list):
        kept["levels"] = [_kept(e) if isinstance(e, dict) else e for e in levels]
    if isinstance(reference := kept.get("reference"), dict):
        kept["reference"] = _kept(reference)
    return kept


def _kept(part: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in part.items() if key not in _GONE}
