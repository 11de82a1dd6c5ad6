"""Triton's own nv_gpu_* gauges, for a sidecar that cannot reach the driver.

Triton writes 0 into a gauge whose reading failed and never reads it again after three
failures. So 0 W is unknown, and a constant energy counter is frozen, not idle.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from statistics import median_high
from typing import TYPE_CHECKING, Final, Literal

from pydantic import Field

from exporter import catalogue, errors
from exporter.features.energy.sources.power_source import (
    Device,
    Reading,
    SourceSettings,
    Surroundings,
)
from exporter.samples import Sample
from exporter.triton import upstream
from exporter.triton.metrics_page import lines_of, read_page

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from exporter.features.energy.sources.power_source import Boundary
    from exporter.samples import AnySample
    from exporter.triton.http import HttpClient

_MICRO: Final = 1_000_000
_READ: Final = (
    upstream.GPU_POWER,
    upstream.GPU_POWER_LIMIT,
    upstream.GPU_ENERGY,
    upstream.GPU_UTILIZATION,
    upstream.GPU_MEMORY_USED,
    upstream.GPU_MEMORY_TOTAL,
)
_LINES: Final = lines_of(item.name for item in _READ)
_MOST_GPUS: Final = 256
_MOST_SERIES: Final = 10_000
# --metrics-interval-ms of Triton is 2 s by default, and an update may be a second late.
_UPDATE_SECONDS: Final = 3.0
_MOST_INTERVALS: Final = 5


class TritonGaugesSettings(SourceSettings):
    """The boards as shown on Triton's metrics page."""

    kind: Literal["triton"] = "triton"
    idle_watts: float | None = Field(default=None, ge=0, le=1_000_000)
    """Power of each board while nothing runs. Learnt if not set."""

    @property
    def boundary(self) -> Boundary:
        """The boards."""
        return "gpu"

    def find(self, surroundings: Surroundings) -> TritonGauges | None:
        """The source, where the page shows a board that takes power.

        Raises:
            TritonError: the page cannot be had.
        """
        if surroundings.metrics is None:
            return None
        source = TritonGauges(self.idle_watts, surroundings, surroundings.metrics)
        power = upstream.GPU_POWER.name
        shown = source.page().values()
        return source if any(page.get(power) for page in shown) else None


@dataclass(slots=True)
class _Updates:
    """The usual time between two values of a counter, as Triton was configured."""

    joules: float | None = None
    at: float = 0.0
    intervals: deque[float] = field(
        default_factory=lambda: deque(maxlen=_MOST_INTERVALS)
    )

    def add(self, joules: float | None, at: float) -> float:
        """Return the usual seconds, of the latest intervals: a frozen counter is rare."""
        if joules != self.joules:
            if self.joules and joules:
                self.intervals.append(at - self.at)
            self.joules, self.at = joules, at
        return max(_UPDATE_SECONDS, median_high(self.intervals or [0.0]))


class TritonGauges:
    """Reads the page."""

    kind = "triton"

    def __init__(
        self,
        idle_watts: float | None,
        surroundings: Surroundings,
        client: HttpClient,
    ) -> None:
        self._idle_watts = idle_watts
        self._surroundings = surroundings
        self._client = client
        self._updates: dict[str, _Updates] = defaultdict(_Updates)

    @property
    def description(self) -> str:
        """Description for the log."""
        return (
            "Triton's own gauges, which are latched at 0 once a reading failed thrice"
        )

    def read(self) -> Sequence[Reading]:
        """Every board of the page.

        Raises:
            TritonError: the page cannot be had.
        """
        page = self.page()
        at = self._surroundings.clock()
        return [
            self._reading(str(index), uuid, values, at)
            for index, (uuid, values) in enumerate(sorted(page.items()))
        ]

    def close(self) -> None:
        """Do nothing: the client belongs to the caller."""

    def page(self) -> Mapping[str, Mapping[str, float]]:
        """Values by series, by board.

        Raises:
            TritonError: the page cannot be had.
        """
        body = self._client.get(
            "/metrics", timeout_seconds=self._surroundings.timeout_seconds
        )
        boards: dict[str, dict[str, float]] = defaultdict(dict)
        read = read_page(body, _LINES, most_series=_MOST_SERIES)
        if read.refused and not read.series:
            raise errors.ProtocolError("the metrics page cannot be read")
        for name, labels, value in read.series:
            uuid = labels.get("gpu_uuid", "")
            if uuid and (uuid in boards or len(boards) < _MOST_GPUS):
                boards[uuid][name] = value
        return boards

    def _reading(
        self, index: str, uuid: str, values: Mapping[str, float], at: float
    ) -> Reading:
        limit = values.get(upstream.GPU_POWER_LIMIT.name) or None
        joules = values.get(upstream.GPU_ENERGY.name)
        device = Device(
            "gpu",
            self.kind,
            uuid,
            index=index,
            idle_watts=self._idle_watts,
            max_watts=limit,
            update_seconds=self._updates[uuid].add(joules, at),
        )
        return Reading(
            device,
            at,
            # 0 is what a failed reading leaves behind, and what a counter begins with.
            None if not joules else round(joules * _MICRO),
            power_watts=values.get(upstream.GPU_POWER.name),
            utilization_ratio=values.get(upstream.GPU_UTILIZATION.name),
            samples=list(_samples(device, values, limit)),
        )


def _samples(
    device: Device, values: Mapping[str, float], limit: float | None
) -> Iterator[AnySample]:
    labels = (device.index, device.key, device.name, device.source)
    if limit is not None:
        yield Sample(catalogue.GPU_POWER_LIMIT, limit, labels)
    # 0 may be a reading or a failure here, so an ambiguous 0 is not reported.
    for series, spec in (
        (upstream.GPU_UTILIZATION, catalogue.GPU_UTILIZATION),
        (upstream.GPU_MEMORY_USED, catalogue.GPU_MEMORY_USED),
        (upstream.GPU_MEMORY_TOTAL, catalogue.GPU_MEMORY_TOTAL),
    ):
        value = values.get(series.name)
        if value:
            yield Sample(spec, value, labels)
