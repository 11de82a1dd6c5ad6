"""One ready model version as an audit saw it: its requests, their times, its answers."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

from exporter.catalogue.probe_outcomes import SERVED
from exporter.triton.protocol_types import Duration, ModelStatistics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from exporter.access.inventory import ModelKey
    from exporter.access.probe_base import Target, Verdict
    from exporter.triton.protocol_types import ModelSpec

ENOUGH_REQUESTS: Final = 10
"""Requests below which a mean has no meaning."""
_COMPUTE: Final = ("compute_input", "compute_infer", "compute_output")
_DEAD_STUB: Final = re.compile(
    r"stub process|stub_process|is not healthy", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Answers:
    """The verdicts on a model by one protocol, at least one."""

    target: Target
    verdicts: tuple[Verdict, ...]


@dataclass(frozen=True, slots=True)
class TimeShare:
    """Mean seconds of one request by phase, and what they were read from.

    `network` is the path between this process and the server, null where unknown. `other`
    is what the server counts in a request and in none of its phases.
    """

    model: str
    version: str
    source: Literal["window", "cumulative"]
    requests: int
    network: float | None
    queue: float
    compute_input: float
    compute_infer: float
    compute_output: float
    other: float

    @property
    def copies(self) -> float:
        """Moving tensors in and out."""
        return self.compute_input + self.compute_output

    @property
    def compute(self) -> float:
        """All three compute phases together."""
        return self.copies + self.compute_infer

    @property
    def server(self) -> float:
        """All that the server counts."""
        return self.queue + self.compute + self.other


@dataclass(frozen=True)
class ModelSeen:
    """A ready model version. A number that could not be read is NaN.

    `first` and `second` are its statistics at both ends of the window in which only
    others sent requests.
    """

    spec: ModelSpec
    first: ModelStatistics
    second: ModelStatistics
    counted: bool
    """True if the statistics API could be read."""
    window_seconds: float
    network_seconds: float
    page_requests: float
    """Successful requests by Triton's metrics page."""
    answers: tuple[Answers, ...]
    trace_settings: Mapping[str, tuple[str, ...]]
    """In force for it; empty where unknown."""

    @property
    def key(self) -> ModelKey:
        """Model and version."""
        return self.spec.name, self.spec.version

    # Requests of others.

    @cached_property
    def window(self) -> ModelStatistics:
        """The requests of others in the window; none if the counters restarted."""
        return rise(self.first, self.second) or ModelStatistics(*self.key)

    @cached_property
    def share(self) -> TimeShare:
        """Its time by phase, in the window or since it was loaded.

        NaN of few requests, and of a decoupled model: Triton's counters end when `execute`
        returns, which of one that answers from a thread is before its first response.
        """
        is_window = self.window.success.count >= ENOUGH_REQUESTS
        counted = self.window if is_window else self.second
        requests = counted.success.count
        is_known = requests >= ENOUGH_REQUESTS and not self.spec.decoupled
        enough = requests if is_known else math.nan
        total, queue, copied_in, inferred, copied_out = (
            getattr(counted, name).ns / 1e9 / enough
            for name in ("success", "queue", *_COMPUTE)
        )
        return TimeShare(
            *self.key,
            source="window" if is_window else "cumulative",
            requests=requests,
            network=None if math.isnan(self.network_seconds) else self.network_seconds,
            queue=queue,
            compute_input=copied_in,
            compute_infer=inferred,
            compute_output=copied_out,
            # Triton counts whole nanoseconds; less is the error of the sum.
            other=max(0.0, round(total - queue - copied_in - inferred - copied_out, 9)),
        )

    @property
    def batch(self) -> float:
        """Mean inferences of an execution; NaN of few, and of an ensemble, whose steps execute."""
        is_window = self.share.source == "window"
        counted = self.window if is_window else self.second
        few = self.share.requests < ENOUGH_REQUESTS
        if few or not counted.execution_count or self.spec.steps:
            return math.nan
        return counted.inference_count / counted.execution_count

    @property
    def batching(self) -> str:
        """Its dynamic batching in words."""
        if not self.spec.dynamic_batching:
            return "off"
        delay, most = self.spec.max_queue_delay_us, self.spec.max_batch_size
        return f"of up to {most}, waiting up to {delay} µs"

    @property
    def failed_ratio(self) -> float:
        """Share of the window's requests that failed."""
        failed = self.window.fail.count
        return failed / max(1, failed + self.window.success.count)

    @property
    def busy_seconds(self) -> float:
        """Time in the window during which its instances executed, all together."""
        return (_busy_ns(self.second) - _busy_ns(self.first)) / 1e9

    @property
    def busy_ratio(self) -> float:
        """Busy share of its instances' time; NaN where it is not known, as `share` is."""
        if not self.window.execution_count or self.spec.decoupled:
            return math.nan
        instances = self.spec.instances or math.nan
        return self.busy_seconds / self.window_seconds / instances

    @property
    def headroom_ratio(self) -> float:
        """Idle share of its instances' time: an upper bound of the headroom."""
        return max(0.0, 1 - self.busy_ratio)

    # Its traces.

    @property
    def traced_in_memory(self) -> bool:
        """Return whether its traces are kept until the server ends."""
        return (
            self.trace_setting("trace_level") not in ("", "OFF")
            and self.trace_setting("trace_mode") != "opentelemetry"
            and self.trace_setting("log_frequency") == "0"
            and self.trace_setting("trace_count") in ("", "-1")
        )

    def trace_setting(self, name: str) -> str:
        """One trace setting as text."""
        return ",".join(self.trace_settings.get(name, ()))

    # Our own requests.

    @cached_property
    def verdicts(self) -> tuple[Verdict, ...]:
        """All verdicts."""
        return tuple(verdict for given in self.answers for verdict in given.verdicts)

    @property
    def ok(self) -> int:
        """Number of requests that were answered well, however slowly."""
        return sum(verdict.outcome in SERVED for verdict in self.verdicts)

    @property
    def stalled(self) -> int:
        """Number of streamed answers that were slower than the probe allows."""
        return sum(verdict.outcome == "stalled" for verdict in self.verdicts)

    @property
    def asked(self) -> int:
        """Number of our own requests that were evaluated."""
        return len(self.verdicts)

    @property
    def misfit(self) -> bool:
        """Return whether a made-up tensor, or our headers, are all that was refused."""
        failed = {v.outcome for v in self.verdicts} - SERVED
        return failed in ({"invalid"}, {"configuration"})

    @property
    def fails(self) -> bool:
        """Return whether no request was answered well."""
        return self.ok == 0 < self.asked and not self.misfit

    @property
    def fails_partly(self) -> bool:
        """Return whether some requests were answered well, and some not."""
        return 0 < self.ok < self.asked and not self.misfit

    @property
    def error(self) -> str:
        """The first failure; "" if there is none."""
        failures = (v for v in self.verdicts if v.outcome != "ok")
        return next((f"{v.outcome}: {v.detail}" for v in failures), "")

    @property
    def stub_died(self) -> bool:
        """Return whether the process of the Python backend is dead."""
        return any(_DEAD_STUB.search(verdict.detail) for verdict in self.verdicts)

    @property
    def silent_protocol(self) -> str:
        """A protocol over which nothing was answered; "" if there is none."""
        for given in self.answers:
            if all(verdict.outcome not in SERVED for verdict in given.verdicts):
                return given.target.protocol
        return ""


def rise(before: ModelStatistics, after: ModelStatistics) -> ModelStatistics | None:
    """Return the increase between two reads; None if the counters restarted in between."""
    if (
        after.success.count < before.success.count
        or after.inference_count < before.inference_count
        or after.execution_count < before.execution_count
    ):
        return None
    durations: dict[str, Any] = {}
    for name in ("success", "fail", "queue", *_COMPUTE):
        old, new = getattr(before, name), getattr(after, name)
        durations[name] = Duration(
            max(0, new.count - old.count), max(0, new.ns - old.ns)
        )
    return ModelStatistics(
        after.name,
        after.version,
        after.inference_count - before.inference_count,
        after.execution_count - before.execution_count,
        **durations,
    )


def _busy_ns(statistics: ModelStatistics) -> int:
    """Execution time of all batches: a batch counts once, however many it served."""
    phases = (getattr(batch, name) for batch in statistics.batches for name in _COMPUTE)
    return sum(phase.ns for phase in phases)
