"""Evidently: its default drift report, and its statistics without the report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import protocol
from evidently import DataDefinition, Dataset, Report
from evidently.legacy.calculations.stattests import (
    jensenshannon,
    psi,
    wasserstein_distance_norm,
)
from evidently.legacy.core import ColumnType
from evidently.presets import DataDriftPreset

if TYPE_CHECKING:
    import numpy as np


THRESHOLD = 0.1
checked: list[bool] = []


def dataset(frame: Any) -> Dataset:
    numeric = [name for name in frame if name.startswith("x")]
    other = [name for name in frame if name.startswith("c")]
    definition = DataDefinition(numerical_columns=numeric, categorical_columns=other)
    return Dataset.from_pandas(frame, data_definition=definition)


def report(current: Any, reference: Any) -> dict[str, Any]:
    run = Report([DataDriftPreset()]).run(dataset(current), dataset(reference))
    return run.dict()


def default_score(reference: Any, current: Any, name: str) -> float:
    """What the report does for references of more than 1,000 rows."""
    if name.startswith("x"):
        return wasserstein_distance_norm._wasserstein_distance_norm(
            reference[name], current[name], ColumnType.Numerical, 0.1
        )[0]
    return jensenshannon._jensenshannon(
        reference[name], current[name], ColumnType.Categorical, 0.1
    )[0]


def speed(reference: protocol.Rows, window: protocol.Rows) -> dict[str, protocol.Act]:
    old, new = protocol.frame(*reference), protocol.frame(*window)

    def psi_only() -> None:
        for name in old:
            numeric = name.startswith("x")
            kind = ColumnType.Numerical if numeric else ColumnType.Categorical
            psi._psi(old[name], new[name], kind, 0.1)

    return {
        "default report": lambda: report(new, old),
        "PSI without the report": psi_only,
    }


def _check_with_report(old: Any, new: Any, found: list[bool]) -> None:
    """Once a run: the report itself flags the same columns."""
    scores = {
        metric["config"]["column"]: float(metric["value"]) >= THRESHOLD
        for metric in report(new, old)["metrics"]
        if "column" in metric["config"]
    }
    if [scores[name] for name in old] != found:
        raise RuntimeError(f"the report flags {scores}, its functions {found}")


def flags(reference: protocol.Rows) -> dict[str, protocol.Flagger]:
    old = protocol.frame(*reference)

    def default(x: np.ndarray, c: np.ndarray) -> list[bool]:
        new = protocol.frame(x, c)
        found = [default_score(old, new, name) >= THRESHOLD for name in old]
        if not checked:
            checked.append(True)
            _check_with_report(old, new, found)
        return found

    return {"default (W1/sd, JS >= 0.1)": default}


if __name__ == "__main__":
    protocol.main("evidently", speed, flags)
