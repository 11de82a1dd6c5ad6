"""Model versions whose statistics our requests raise, and accounting for them.

The model asked and the steps of an ensemble follow from the configuration. What a model of
the Python backend calls by itself (BLS) is in no configuration of Triton: the user declares
it (`calls` of the collector `statistics`).
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from exporter.access.inventory import latest_version
from exporter.access.own_traffic import Touched

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from exporter.access.collector_base import Access
    from exporter.access.inventory import Inventory, ModelKey
    from exporter.access.own_traffic import OwnRequest
    from exporter.triton.protocol_types import InferRequest, ModelSpec

_MOST_LEVELS: Final = 8
"""Ensembles of ensembles are followed this deep; Triton refuses a cycle."""
_MOST_TOUCHED: Final = 256
"""Limit of an ensemble's steps; one that names itself ten times has 10^8."""


@contextlib.contextmanager
def own_inference(
    access: Access, spec: ModelSpec, request: InferRequest
) -> Generator[OwnRequest]:
    """Account for one own inference; exceptions of the body pass through."""
    touched = touched_by(spec, access.board.current, request, access.own.calls)
    with access.own.request(touched) as sent:
        yield sent


def touched_by(
    spec: ModelSpec,
    inventory: Inventory,
    request: InferRequest,
    calls: Mapping[str, Mapping[str, int]],
) -> list[Touched]:
    """The model versions whose statistics one request to `spec` raises, it first."""
    batch_size = next((a.shape[0] for a in request.inputs.values() if a.ndim), 1)
    reach = _Reach(inventory, batch_size, calls)
    reach.add(spec.key, spec)
    return reach.touched


class _Reach:
    """Follows one request through ensembles and declared calls."""

    def __init__(
        self,
        inventory: Inventory,
        batch_size: int,
        calls: Mapping[str, Mapping[str, int]],
    ) -> None:
        self.touched: list[Touched] = []
        self._inventory = inventory
        self._batch_size = batch_size
        self._calls = calls

    def add(
        self,
        key: ModelKey,
        spec: ModelSpec | None,
        levels: int = _MOST_LEVELS,
        *,
        is_certain: bool = True,
    ) -> None:
        """Add a model version and all that its requests reach.

        `is_certain` is False behind a cache and below a call: what a model calls may fail
        although its own request succeeds.
        """
        is_cached = spec is not None and spec.response_cache
        is_executed = is_certain and not is_cached
        size = self._batch_size if spec is not None and spec.max_batch_size > 0 else 1
        fails_twice = spec is not None and bool(spec.steps)
        self.touched.append(Touched(key, size, is_executed, is_certain, fails_twice))
        if not levels:
            return
        for model, version in spec.steps if spec else ():
            self._follow(model, version, levels - 1, is_certain=is_executed)
        for model, number in self._calls.get(key[0], {}).items():
            for _ in range(number):
                self._follow(model, "", levels - 1, is_certain=False)

    def _follow(
        self, model: str, version: str, levels: int, *, is_certain: bool
    ) -> None:
        resolved = version or latest_version(self._inventory, model)
        if resolved is None or len(self.touched) >= _MOST_TOUCHED:
            return
        key = (model, resolved)
        self.add(key, self._inventory.models.get(key), levels, is_certain=is_certain)
