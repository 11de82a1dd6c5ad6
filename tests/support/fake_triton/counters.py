"""What the fake counts, and how Triton's statistics and nv_* metrics show it.

The bookkeeping follows Triton 2.51, executed: an execution counts once in `batch_stats`
but once per request in `inference_stats`; a failed execution raises `execution_count`,
`batch_stats` and `fail`, and neither `inference_count` nor the phases.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from fake_triton.fake_models import Timings

COMPUTE_PHASES: Final = ("compute_input", "compute_infer", "compute_output")
FailureReason = Literal["OTHER", "BACKEND", "CANCELED", "REJECTED"]
FAILURE_REASONS: Final[tuple[FailureReason, ...]] = (
    "OTHER",
    "BACKEND",
    "CANCELED",
    "REJECTED",
)
UINT64_MAX: Final = 2**64 - 1


@dataclass(slots=True)
class Duration:
    """How often, and how long in all."""

    count: int = 0
    ns: int = 0

    def add(self, count: int, ns: int) -> None:
        """Count `count` more that took `ns` in all."""
        self.count += count
        self.ns += ns

    def document(self) -> dict[str, int]:
        """The statistics API's form."""
        return {"count": self.count, "ns": self.ns}


def _phases() -> dict[str, Duration]:
    return {phase: Duration() for phase in COMPUTE_PHASES}


@dataclass(slots=True)
class Counters:
    """Everything counted for one version of one model."""

    inference_count: int = 0
    execution_count: int = 0
    last_inference_ms: int = 0
    success: Duration = field(default_factory=Duration)
    fail: Duration = field(default_factory=Duration)
    queue: Duration = field(default_factory=Duration)
    compute: dict[str, Duration] = field(default_factory=_phases)
    batches: dict[int, dict[str, Duration]] = field(default_factory=dict)
    failures: dict[FailureReason, int] = field(default_factory=dict)

    def succeeded(
        self, requests: int, rows: int, executions: int, timings: Timings, now_ms: int
    ) -> None:
        """Count `requests` of `rows` inferences each, served in `executions`."""
        took = _compute_ns(timings)
        self.inference_count += requests * rows
        self.last_inference_ms = now_ms
        self.success.add(requests, requests * (timings.queue_ns + sum(took.values())))
        self.queue.add(requests, requests * timings.queue_ns)
        for phase, ns in took.items():
            self.compute[phase].add(requests, requests * ns)
        self._executed(requests * rows // executions, executions, took)

    def failed(
        self, requests: int, rows: int, reason: FailureReason, timings: Timings
    ) -> None:
        """Count `requests` that failed; only BACKEND failures were executed."""
        took = _compute_ns(timings)
        self.failures[reason] = self.failures.get(reason, 0) + requests
        self.fail.add(requests, requests * (timings.queue_ns + sum(took.values())))
        if reason == "BACKEND":
            self._executed(rows, requests, took)

    def _executed(
        self, batch_size: int, executions: int, took: Mapping[str, int]
    ) -> None:
        self.execution_count += executions
        batch = self.batches.setdefault(batch_size, _phases())
        for phase, ns in took.items():
            batch[phase].add(executions, executions * ns)


def _compute_ns(timings: Timings) -> dict[str, int]:
    return {
        "compute_input": timings.compute_input_ns,
        "compute_infer": timings.compute_infer_ns,
        "compute_output": timings.compute_output_ns,
    }


def statistics_document(name: str, version: str, counters: Counters) -> dict[str, Any]:
    """One member of `model_stats`."""
    nothing = {"count": 0, "ns": 0}
    return {
        "name": name,
        "version": version,
        "last_inference": counters.last_inference_ms,
        "inference_count": counters.inference_count,
        "execution_count": counters.execution_count,
        "inference_stats": {
            "success": counters.success.document(),
            "fail": counters.fail.document(),
            "queue": counters.queue.document(),
            **{key: value.document() for key, value in counters.compute.items()},
            "cache_hit": dict(nothing),
            "cache_miss": dict(nothing),
        },
        "response_stats": {},
        "batch_stats": [
            {
                "batch_size": size,
                **{key: value.document() for key, value in phases.items()},
            }
            for size, phases in sorted(counters.batches.items())
        ],
        "memory_usage": [],
    }


@dataclass(frozen=True, slots=True)
class MetricsRow:
    """What the metrics page shows of one model version."""

    name: str
    version: str
    counters: Counters
    pending: int


_FAMILIES: Final[Mapping[str, Callable[[Counters], int]]] = {
    "nv_inference_request_success": lambda c: c.success.count,
    "nv_inference_count": lambda c: c.inference_count,
    "nv_inference_exec_count": lambda c: c.execution_count,
    "nv_inference_request_duration_us": lambda c: c.success.ns // 1000,
    "nv_inference_queue_duration_us": lambda c: c.queue.ns // 1000,
    "nv_inference_compute_input_duration_us": lambda c: (
        c.compute["compute_input"].ns // 1000
    ),
    "nv_inference_compute_infer_duration_us": lambda c: (
        c.compute["compute_infer"].ns // 1000
    ),
    "nv_inference_compute_output_duration_us": lambda c: (
        c.compute["compute_output"].ns // 1000
    ),
}


def metrics_text(rows: Iterable[MetricsRow], *, load_durations: bool) -> str:
    """The page of the metrics port, in Prometheus text format 0.0.4."""
    listed = tuple(rows)
    lines: list[str] = []
    for family, value in _FAMILIES.items():
        lines.append(f"# TYPE {family} counter")
        lines += [f"{family}{{{_labels(row)}}} {value(row.counters)}" for row in listed]
    lines += _failure_lines(listed)
    pending = "nv_inference_pending_request_count"
    lines.append(f"# TYPE {pending} gauge")
    lines += [f"{pending}{{{_labels(row)}}} {row.pending}" for row in listed]
    if load_durations:
        family = "nv_model_load_duration_secs"
        lines.append(f"# TYPE {family} gauge")
        lines += [f"{family}{{{_labels(row)}}} 0.25" for row in listed]
    lines += ["# TYPE nv_cpu_utilization gauge", "nv_cpu_utilization 0.25"]
    return "\n".join(lines) + "\n"


def _failure_lines(rows: Iterable[MetricsRow]) -> list[str]:
    family = "nv_inference_request_failure"
    lines = [f"# TYPE {family} counter"]
    for row in rows:
        for reason in FAILURE_REASONS:
            labels = (
                f'model="{_escaped(row.name)}",reason="{reason}",'
                f'version="{_escaped(row.version)}"'
            )
            count = row.counters.failures.get(reason, 0)
            lines.append(f"{family}{{{labels}}} {count}")
    return lines


def _labels(row: MetricsRow) -> str:
    return f'model="{_escaped(row.name)}",version="{_escaped(row.version)}"'


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
