"""Boards of a model's instances, from the labels of Triton's metrics page.

The statistics API adds all instances of a model up. Triton's metrics page has a
`gpu_uuid` for instances on GPUs and none for those on the CPU, so a model's busy time is
divided as its compute time on that page rose.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from exporter import errors
from exporter.triton.metrics_page import lines_of, read_page
from exporter.triton.upstream import PLACEMENT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from exporter.access.inventory import ModelKey
    from exporter.features.energy.power_readings import Device
    from exporter.triton.http import HttpClient

_LINES: Final = lines_of([PLACEMENT.name])
_MOST_SERIES: Final = 100_000


@dataclass(frozen=True, slots=True)
class Placement:
    """Placement of models: latest compute time by gpu_uuid ("" is the CPU).

    `boards` are the uuids that are measured. A model that is missing on the metrics page is
    assumed to run on all of them alike, which is Triton's default.
    """

    boards: frozenset[str] = frozenset()
    parents: Mapping[str, str] = field(default_factory=dict)
    """Board by MIG instance."""
    compute: Mapping[ModelKey, Mapping[str, float]] = field(default_factory=dict)

    def share(self, key: ModelKey, device: Device) -> tuple[float, str]:
        """Part of the model's busy time on this device, 0 to 1, and its MIG instance."""
        if device.boundary == "host":
            return 1.0, ""
        where = self.compute.get(key)
        if not where:
            return 1 / max(1, len(self.boards)), ""
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

    def __init__(self, client: HttpClient | None, timeout_seconds: float) -> None:
        self._client = client
        self._timeout_seconds = timeout_seconds
        self._before: dict[ModelKey, dict[str, float]] = {}
        self._compute: dict[ModelKey, Mapping[str, float]] = {}

    def read(
        self, boards: frozenset[str], parents: Mapping[str, str], *, ask: bool
    ) -> Placement:
        """The placement now; with `ask` False as last seen, without a request."""
        if ask and self._client is not None:
            self._note(self._page(self._client))
        return Placement(boards, parents, dict(self._compute))

    def _page(self, client: HttpClient) -> dict[ModelKey, dict[str, float]]:
        page: dict[ModelKey, dict[str, float]] = defaultdict(dict)
        try:
            body = client.get("/metrics", timeout_seconds=self._timeout_seconds)
        except errors.TritonError:
            # Metrics may be switched off; then every board is taken to have its part.
            return {}
        for _, labels, value in read_page(
            body, _LINES, most_series=_MOST_SERIES
        ).series:
            if "model" in labels and "version" in labels:
                where = page[labels["model"], labels["version"]]
                uuid = labels.get("gpu_uuid", "")
                where[uuid] = where.get(uuid, 0.0) + value
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
