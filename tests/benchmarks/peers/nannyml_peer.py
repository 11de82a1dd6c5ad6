"""NannyML: its univariate drift calculator, chunked by the window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import nannyml
import protocol

if TYPE_CHECKING:
    import numpy as np


def calculator(frame: Any, rows: int, **methods: Any) -> Any:
    other = [name for name in frame if name.startswith("c")]
    return nannyml.UnivariateDriftCalculator(
        column_names=list(frame),
        treat_as_categorical=other,
        chunk_size=rows,
        **methods,
    ).fit(frame)


def speed(reference: protocol.Rows, window: protocol.Rows) -> dict[str, protocol.Act]:
    old, new = protocol.frame(*reference), protocol.frame(*window)
    fitted = {
        "Jensen-Shannon (default), fitted before": calculator(old, 10_000),
        "Kolmogorov-Smirnov, fitted before": calculator(
            old, 10_000, continuous_methods=["kolmogorov_smirnov"]
        ),
    }
    return {
        name: lambda found=found: found.calculate(new) for name, found in fitted.items()
    }


def flags(reference: protocol.Rows) -> dict[str, protocol.Flagger]:
    old = protocol.frame(*reference)
    fitted: dict[int, Any] = {}

    def default(x: np.ndarray, c: np.ndarray) -> list[bool]:
        if len(x) not in fitted:
            fitted[len(x)] = calculator(old, len(x))
        result = fitted[len(x)].calculate(protocol.frame(x, c))
        table = result.filter(period="analysis").to_df()
        return [bool(table[name]["jensen_shannon"]["alert"].iloc[0]) for name in old]

    return {"default (JS, 3 sd of reference chunks)": default}


if __name__ == "__main__":
    protocol.main("nannyml", speed, flags)
