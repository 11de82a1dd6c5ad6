"""What runs and what was found, for people: /api/v1/status, which the page at / draws."""

from __future__ import annotations

import platform
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from exporter.config import logs
from exporter.web import overview

if TYPE_CHECKING:
    from exporter.access.inventory import ModelKey
    from exporter.app import Sidecar
    from exporter.runtime.probe_meter import TargetStatus
    from exporter.triton.model import IndexEntry


def document(sidecar: Sidecar) -> dict[str, Any]:
    """The state of everything as JSON-able values; holds no header and no secret."""
    inventory = sidecar.access.board.current
    serving = sidecar.serving()
    shown = overview.series(sidecar.samples())
    document = {
        "tritonwatch": {
            "version": version("tritonwatch"),
            "python": platform.python_version(),
        },
        "target": sidecar.config.target.model_dump(include={"grpc", "http", "metrics"}),
        "server": {
            "up": inventory.up,
            "ready": inventory.ready,
            "name": inventory.info.name if inventory.info else None,
            "product": inventory.info.product if inventory.info else None,
            "version": inventory.info.version if inventory.info else None,
        },
        "models": [
            {
                "model": entry.name,
                "version": entry.version,
                "ready": entry.ready,
                "reason": entry.reason,
                "serving": serving.get((entry.name, entry.version)),
            }
            for entry in sorted(
                (entry for entry in inventory.index if entry.state),
                key=lambda entry: _urgency(entry, serving),
            )
        ],
        "probes": [
            {
                "probe": runner.meter.name,
                "model": status.target.key[0],
                "version": status.target.key[1],
                "protocol": status.target.protocol,
                "outcome": status.verdict.outcome,
                "duration_seconds": status.verdict.duration_seconds,
                "detail": status.verdict.detail,
            }
            for runner in sidecar.probe_runners
            for status in sorted(runner.results.statuses(), key=_by_model)
        ],
        "collectors": [
            {
                "collector": runner.meter.name,
                "success": runner.meter.statistics.success,
                "duration_seconds": runner.meter.statistics.duration_seconds,
                "failure": runner.meter.statistics.failure,
            }
            for runner in sidecar.runners
        ],
        "series": shown,
        "truncated": overview.truncated(shown),
        "events": logs.recent(),
        **sidecar.sections(),
    }
    found: dict[str, Any] = overview.finite(document)
    return found


def _urgency(entry: IndexEntry, serving: dict[ModelKey, bool]) -> int:
    """The place of a model in lists: what does not serve first, what does last."""
    serves = serving.get((entry.name, entry.version))
    if serves is False:
        return 0
    if not entry.ready:
        return 1
    return 2 if serves is None else 3


def _by_model(status: TargetStatus) -> tuple[ModelKey, str]:
    return status.target.key, status.target.protocol
