"""The sidecar's view of a load: the difference of two of its pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import urllib3

from exporter import catalogue
from exporter.output.exposition import parse_text

if TYPE_CHECKING:
    from collections.abc import Mapping

Page = dict[tuple[str, str], float]
"""Sums of counters by (series name, label that a report distinguishes)."""
_TIMEOUT_SECONDS: Final = 5.0
_OK: Final = 200
_PHASE: Final = catalogue.REQUEST_PHASE_DURATION.name
_WHOLE: Final = {
    catalogue.IDLE_ENERGY.name: "idle",
    catalogue.UNATTRIBUTED_ENERGY.name: "unattributed",
}


def page(url: str) -> Page | None:
    """Return the counters of a sidecar's /metrics now; None where it does not answer."""
    try:
        with urllib3.PoolManager() as pool:
            answer = pool.request(
                "GET", url, timeout=_TIMEOUT_SECONDS, retries=False, redirect=False
            )
        if answer.status != _OK:
            return None
        return _sums(answer.data)
    except (urllib3.exceptions.HTTPError, ValueError):
        return None


def _sums(body: bytes) -> Page:
    kept = {f"{_PHASE}_sum": "phase", f"{_PHASE}_count": "phase"}
    kept[catalogue.MODEL_ENERGY.name] = "model"
    found: Page = {}
    for name, labels, value in parse_text(body):
        label = _WHOLE.get(name) or labels.get(kept.get(name, ""), "")
        if label:
            found[name, label] = found.get((name, label), 0.0) + value
    return found


def between(before: Page | None, after: Page | None) -> dict[str, Any]:
    """Return the increase, for `report.run_report.SidecarView`; empty where unknown.

    Mean seconds of a traced request by phase, and joules by model, idle and
    unattributed. A counter that fell, or was not there before, is left out.
    """
    if before is None or after is None:
        return {}
    rises = {key: after[key] - value for key, value in before.items() if key in after}
    phases = {
        phase: rises[f"{_PHASE}_sum", phase] / count
        for (name, phase), count in rises.items()
        if name == f"{_PHASE}_count" and count > 0 and (f"{_PHASE}_sum", phase) in rises
    }
    energy = {
        label: joules
        for (name, label), joules in rises.items()
        if name in {catalogue.MODEL_ENERGY.name, *_WHOLE} and joules > 0
    }
    found: Mapping[str, Any] = {"phase_seconds": phases, "energy_joules": energy}
    return dict(found) if phases or energy else {}
