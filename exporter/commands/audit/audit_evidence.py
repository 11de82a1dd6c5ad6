"""The observations of an audit, as frozen records: all that checks may use."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from exporter.access.inventory import Inventory
from exporter.errors import ProtocolError
from exporter.triton.http_path import model_path
from exporter.triton.model import BatchStatistics, Duration, ModelStatistics

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from exporter.access.inventory import ModelKey
    from exporter.access.probe_base import Target, Verdict
    from exporter.commands.audit.audit_power import Taken


ENOUGH_REQUESTS: Final = 10
"""Requests below which a mean has no meaning."""

Part = Literal["http", "configurations", "statistics", "metrics", "traces"]
"""Sources that can be missing while the server itself answers."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The parts of a model's configuration that the audit reads."""

    dynamic_batching: bool
    max_queue_delay_us: int
    instances: int
    on_gpu: bool


@dataclass(frozen=True, slots=True)
class Page:
    """Triton's metrics page at one instant, `at` in seconds since the audit began."""

    at: float
    series: Mapping[str, tuple[tuple[Mapping[str, str], float], ...]]

    def values(self, name: str) -> dict[tuple[tuple[str, str], ...], float]:
        """Label set -> value of one series."""
        return {tuple(sorted(la.items())): v for la, v in self.series.get(name, ())}


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Deviation of one counter of the metrics page, as a share of its true increase."""

    key: ModelKey
    counter: str
    ratio: float


@dataclass(frozen=True, slots=True)
class Paired:
    """One request of ours, alone in the model's statistics: both sides of it."""

    client_seconds: float
    server_seconds: float
    compute_seconds: float


@dataclass(frozen=True, slots=True)
class Probed:
    """Answers of one target; `paired` are those whose time in the server is known."""

    target: Target
    verdicts: tuple[Verdict, ...]
    paired: tuple[Paired, ...] = ()


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests to judge a model by: those of the window, or all since it was loaded."""

    statistics: ModelStatistics
    source: Literal["window", "cumulative"]

    @property
    def requests(self) -> int:
        """Successful requests."""
        return self.statistics.success.count

    def mean_seconds(self, phase: str) -> float:
        """Mean of one member of the inference statistics, per successful request."""
        part: Duration = getattr(self.statistics, phase)
        return part.ns / 1e9 / max(1, self.requests)

    @property
    def compute_seconds(self) -> float:
        """Mean of all three compute phases together."""
        return sum(map(self.mean_seconds, _COMPUTE))


@dataclass(frozen=True, slots=True)
class Evidence:
    """One look. Times are seconds since it began; what could not be read is empty.

    `first` and `second` bracket the window in which only others sent requests; our
    probes came between `second` and `last`, and so did `last_page`.
    """

    inventory: Inventory = field(default_factory=Inventory)
    no_answer: str = ""
    """Reason why the gRPC service does not answer; "" when it does."""
    http_ready: bool | None = None
    window_seconds: float = 0.0
    problems: Mapping[Part, str] = field(default_factory=dict)
    """Reason why a part could not be read."""
    unreadable: Mapping[ModelKey, str] = field(default_factory=dict)
    """Listed as ready, but its metadata is refused; why."""
    unread: int = 0
    """Ready models that were not inspected for lack of time."""
    configs: Mapping[ModelKey, ModelConfig] = field(default_factory=dict)
    first: Mapping[ModelKey, ModelStatistics] = field(default_factory=dict)
    second: Mapping[ModelKey, ModelStatistics] = field(default_factory=dict)
    last: Mapping[ModelKey, ModelStatistics] = field(default_factory=dict)
    first_page: Page | None = None
    last_page: Page | None = None
    disagreements: tuple[Disagreement, ...] = ()
    trace_settings: Mapping[str, Mapping[str, tuple[str, ...]]] = field(
        default_factory=dict
    )
    """Model -> settings in force; "" is the global ones."""
    probes: tuple[Probed, ...] = ()
    power: tuple[Taken, ...] = ()
    """Energy of the machine in the window, by boundary."""
    not_asked: int = 0
    """Targets of probes that there was no time to ask."""

    def window(self, key: ModelKey) -> ModelStatistics | None:
        """Return the requests of others in the window; None without two readings."""
        before, after = self.first.get(key), self.second.get(key)
        return rise(before, after) if before and after else None

    def traffic(self, key: ModelKey) -> Traffic | None:
        """The requests to judge a model by; None if there were not enough."""
        window = self.window(key)
        if window is not None and window.success.count >= ENOUGH_REQUESTS:
            return Traffic(window, "window")
        ever = self.second.get(key) or self.first.get(key)
        if ever is not None and ever.success.count >= ENOUGH_REQUESTS:
            return Traffic(ever, "cumulative")
        return None

    def busy_seconds(self, key: ModelKey) -> float | None:
        """Time in the window during which the model's instances executed."""
        window = self.window(key)
        if window is None:
            return None
        return busy_ns(window) / 1e9

    @property
    def other_server(self) -> str | None:
        """The name of a server that is no Triton; None of a Triton, or where unknown."""
        info = self.inventory.info
        return None if info is None or info.is_triton else info.name

    def lacks(self, part: Part) -> bool:
        """Return whether this is another server, which has no such call."""
        problem = self.problems.get(part, "")
        return self.other_server is not None and problem.startswith("UNIMPLEMENTED")

    @property
    def version(self) -> tuple[int, int, int] | None:
        """Triton's version as numbers; None if it reports none, or is not Triton."""
        info = self.inventory.info
        return None if info is None else info.numbers


def busy_ns(statistics: ModelStatistics) -> int:
    """Execution time of all batches: a batch counts once, however many it served."""
    return sum(
        b.compute_input.ns + b.compute_infer.ns + b.compute_output.ns
        for b in statistics.batches
    )


def rise(before: ModelStatistics, after: ModelStatistics) -> ModelStatistics | None:
    """Return the increase between two reads; None if the counters restarted in between."""
    if (
        after.success.count < before.success.count
        or after.inference_count < before.inference_count
        or after.execution_count < before.execution_count
    ):
        return None
    earlier = {b.batch_size: b for b in before.batches}
    return ModelStatistics(
        after.name,
        after.version,
        after.inference_count - before.inference_count,
        after.execution_count - before.execution_count,
        **_less(after, before, _DURATIONS),
        batches=tuple(
            BatchStatistics(b.batch_size, **_less(b, earlier[b.batch_size], _COMPUTE))
            if b.batch_size in earlier
            else b
            for b in after.batches
        ),
    )


_COMPUTE: Final = ("compute_input", "compute_infer", "compute_output")
_DURATIONS: Final = ("success", "fail", "queue", *_COMPUTE, "cache_hit", "cache_miss")


def _less(after: object, before: object, names: Iterable[str]) -> dict[str, Any]:
    """Return the increase of each duration by name, at least 0."""
    found = {}
    for name in names:
        new, old = getattr(after, name), getattr(before, name)
        count, ns = max(0, new.count - old.count), max(0, new.ns - old.ns)
        found[name] = Duration(count, ns)
    return found


def config_path(name: str, version: str) -> str:
    """Return the path of a model's configuration in Triton's HTTP service."""
    return f"{model_path(name, version)}/config"


def parse_config(body: bytes) -> ModelConfig:
    """Return the configuration in an answer of Triton.

    Raises:
        ProtocolError: it is none.
    """
    try:
        document: Any = json.loads(body)
        groups = list(document.get("instance_group", ()))
        batching = document.get("dynamic_batching")
        delay = int((batching or {}).get("max_queue_delay_microseconds", 0))
        return ModelConfig(
            dynamic_batching=batching is not None,
            max_queue_delay_us=delay,
            instances=sum(_instances(group) for group in groups),
            on_gpu=any(group.get("kind") == "KIND_GPU" for group in groups),
        )
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ProtocolError(
            f"the answer is no model configuration: {type(error).__name__}"
        ) from None


def _instances(group: Any) -> int:
    # `count` is per GPU, where the group names any.
    return int(group.get("count", 1)) * max(1, len(group.get("gpus", ())))
