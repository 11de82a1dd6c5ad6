"""Logs when the state of the server or a model changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from exporter.access.inventory import Inventory, ModelKey

log = structlog.get_logger()

_NAMED: Final = 5


class StateLog:
    """Logs each change of state once; many models share a line."""

    def __init__(self) -> None:
        self._up: bool | None = None
        self._ready: bool | None = None
        self._serving: dict[ModelKey, bool] = {}

    def log_changes(
        self, inventory: Inventory, serving: Mapping[ModelKey, bool]
    ) -> None:
        """Log the changes since the last call."""
        if self._up is not None and inventory.up != self._up:
            (log.info if inventory.up else log.error)(
                "server_answers" if inventory.up else "server_down"
            )
        elif self._ready is not None and inventory.ready != self._ready:
            (log.info if inventory.ready else log.warning)(
                "server_ready" if inventory.ready else "server_not_ready"
            )
        before = self._serving
        broken = [k for k, ok in serving.items() if not ok and before.get(k, True)]
        healed = [k for k, ok in serving.items() if ok and not before.get(k, True)]
        if broken:
            log.error("models_not_serving", number=len(broken), models=_named(broken))
        if healed:
            log.info("models_serving_again", number=len(healed), models=_named(healed))
        self._up, self._ready = inventory.up, inventory.ready
        self._serving = dict(serving)


def _named(keys: list[ModelKey]) -> str:
    names = [f"{model} {version}" for model, version in sorted(keys)[:_NAMED]]
    return ", ".join([*names, *(["…"] if len(keys) > _NAMED else [])])
