"""Boards of a model's instances, from Triton's metrics page and the models' settings.

The statistics API adds all instances of a model up. On Triton's metrics page, a model that
was loaded while the server ran has a `gpu_uuid` for each of its boards, and its busy time
is divided as its compute time on that page rose. A model that was loaded at the start has
none, wherever it runs (server#7479): it is on the boards of its instance groups, and its
busy time is divided equally among them. Boards declared in `power.model_gpus` replace both.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from exporter import errors
from exporter.triton.metrics_page import lines_of, read_page
from exporter.triton.upstream import GPU_MEMORY_TOTAL, PLACEMENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from exporter.access.inventory import ModelKey
    from exporter.features.energy.sources.power_source import Device
    from exporter.triton.http import HttpClient
    from exporter.triton.protocol_types import ModelSpec

_LINES: Final = lines_of([PLACEMENT.name, GPU_MEMORY_TOTAL.name])
_MOST_SERIES: Final = 100_000


@dataclass(frozen=True, slots=True)
class Placement:
    """Placement of models on measured boards.

    A model of which nothing is known is assumed to run on all boards alike, which is
    Triton's default.
    """

    boards: frozenset[str] = frozenset()
    """Uuids of the boards that are measured."""
    parents: Mapping[str, str] = field(default_factory=dict)
    """Board by MIG instance."""
    compute: Mapping[ModelKey, Mapping[str, float]] = field(default_factory=dict)
    """Latest compute time by gpu_uuid; "" is the CPU, or a model loaded at the start."""
    configured: Mapping[ModelKey, frozenset[str]] = field(default_factory=dict)
    """Boards that the model is declared or configured for; none if it is on the CPU."""

    def share(self, key: ModelKey, device: Device) -> tuple[float, str]:
        """Part of the model's busy time on this device, 0 to 1, and its MIG instance."""
        if device.boundary == "host":
            return 1.0, ""
        where = self.compute.get(key, {})
        # An instance that was made since the boards were read is on an unknown board.
        if not {u for u in where if u in self.parents or not u.startswith("MIG-")} - {
            ""
        }:
            boards = self.configured.get(key, self.boards)
            return (1 / len(boards) if device.key in boards else 0.0), ""
        whole = sum(where.values())
        here = {
            uuid: amount
            for uuid, amount in where.items()
            if self.parents.get(uuid, uuid) == device.key
        }
        share = sum(here.values()) / whole if whole else 0.0
        instances = [uuid for uuid in here if uuid in self.parents]
        return share, instances[0] if len(instances) == 1 else ""


class PlacementReader:
    """Reads the page once a window; values missing on it stay as last seen."""

    def __init__(
        self,
        client: HttpClient | None,
        timeout_seconds: float,
        declared: Mapping[str, Sequence[int]] = MappingProxyType({}),
    ) -> None:
        self._client = client
        self._timeout_seconds = timeout_seconds
        self._declared = declared
        self._before: dict[ModelKey, dict[str, float]] = {}
        self._compute: dict[ModelKey, Mapping[str, float]] = {}
        self._shown: set[str] = set()

    def read(
        self,
        boards: Sequence[Device],
        models: Mapping[ModelKey, ModelSpec],
        *,
        ask: bool,
    ) -> Placement:
        """The placement now; with `ask` False as last seen, without a request."""
        if ask and self._client is not None:
            self._note(self._page(self._client))
        # Modelled power is of all boards together, whatever uuids they have.
        compute = {} if any(b.source == "model" for b in boards) else self._compute
        return Placement(
            frozenset(board.key for board in boards),
            {uuid: board.key for board in boards for uuid in board.instances},
            {k: v for k, v in compute.items() if k[0] not in self._declared},
            dict(self._configured(boards, models)),
        )

    def _configured(
        self, boards: Sequence[Device], models: Mapping[ModelKey, ModelSpec]
    ) -> Iterable[tuple[ModelKey, frozenset[str]]]:
        """Yield the boards of each model that is configured for boards that are known.

        CUDA numbers the boards that the server sees, NVML those of the machine, in the
        same order unless CUDA puts a faster board first.
        """
        seen = [board for board in boards if board.key in self._shown] or boards
        if any(board.source != "nvml" for board in seen) and len(seen) > 1:
            seen = []
        # A single board needs no number: that of modelled power has none.
        ordered = sorted(seen, key=lambda b: int(b.index)) if len(seen) > 1 else seen
        for key, spec in models.items():
            gpus = self._declared.get(spec.name, spec.gpus)
            if gpus is not None and all(gpu < len(ordered) for gpu in gpus):
                yield key, frozenset(ordered[gpu].key for gpu in gpus)

    def _page(self, client: HttpClient) -> dict[ModelKey, dict[str, float]]:
        page: dict[ModelKey, dict[str, float]] = defaultdict(dict)
        shown = set()
        try:
            body = client.get("/metrics", timeout_seconds=self._timeout_seconds)
        except errors.TritonError:
            # Metrics may be switched off.
            return {}
        for name, labels, value in read_page(
            body, _LINES, most_series=_MOST_SERIES
        ).series:
            uuid = labels.get("gpu_uuid", "")
            if name == GPU_MEMORY_TOTAL.name:
                shown.add(uuid)
            elif "model" in labels and "version" in labels:
                where = page[labels["model"], labels["version"]]
                where[uuid] = where.get(uuid, 0.0) + value
        # A server that was started again may see other boards.
        self._shown = shown or self._shown
        return page

    def _note(self, page: dict[ModelKey, dict[str, float]]) -> None:
        for key, where in page.items():
            before = self._before.get(key, {})
            rises = {
                uuid: value - before.get(uuid, 0.0) for uuid, value in where.items()
            }
            if any(rise > 0 for rise in rises.values()):
                self._compute[key] = {u: max(0.0, rise) for u, rise in rises.items()}
        if page:
            self._before = page
            for gone in self._compute.keys() - page.keys():
                del self._compute[gone]
