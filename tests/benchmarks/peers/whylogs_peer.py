"""whylogs: profiles of both sides, and its default drift scores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import protocol
import whylogs
from whylogs.viz.drift.column_drift_algorithms import calculate_drift_scores

if TYPE_CHECKING:
    import numpy as np


def view(frame: Any) -> Any:
    return whylogs.log(frame).view()


def scores(new: Any, old: Any) -> dict[str, Any]:
    return calculate_drift_scores(
        target_view=new, reference_view=old, with_thresholds=True
    )


def speed(reference: protocol.Rows, window: protocol.Rows) -> dict[str, protocol.Act]:
    old, new = view(protocol.frame(*reference)), protocol.frame(*window)
    return {"profile and default scores": lambda: scores(view(new), old)}


def flags(reference: protocol.Rows) -> dict[str, protocol.Flagger]:
    frame = protocol.frame(*reference)
    old = view(frame)

    def default(x: np.ndarray, c: np.ndarray) -> list[bool]:
        found = scores(view(protocol.frame(x, c)), old)
        return [
            bool(found[name]) and found[name]["drift_category"] == "DRIFT"
            for name in frame
        ]

    return {"default (KS, chi-square p < 0.05)": default}


if __name__ == "__main__":
    protocol.main("whylogs", speed, flags)
