"""alibi-detect: TabularDrift (Kolmogorov-Smirnov and chi-square, Bonferroni)."""

from __future__ import annotations

import numpy as np
import protocol
from alibi_detect.cd import KSDrift, TabularDrift


def joined(x: np.ndarray, c: np.ndarray) -> np.ndarray:
    return np.concatenate((x, c.astype(np.float32)), axis=1)


def detector(reference: protocol.Rows) -> TabularDrift:
    x, c = reference
    levels = {x.shape[1] + i: sorted(set(c[:, i].tolist())) for i in range(c.shape[1])}
    return TabularDrift(joined(x, c), p_val=0.05, categories_per_feature=levels)


def speed(reference: protocol.Rows, window: protocol.Rows) -> dict[str, protocol.Act]:
    tabular, ks = detector(reference), KSDrift(reference[0], p_val=0.05)
    both = joined(*window)
    return {
        "TabularDrift (default)": lambda: tabular.predict(both),
        "Kolmogorov-Smirnov, numbers only": lambda: ks.predict(window[0]),
    }


def flags(reference: protocol.Rows) -> dict[str, protocol.Flagger]:
    tabular = detector(reference)

    def default(x: np.ndarray, c: np.ndarray) -> list[bool]:
        found = tabular.predict(joined(x, c), drift_type="feature")["data"]
        # The verdict over all features divides the level by their number.
        return (found["p_val"] < 0.05 / found["p_val"].size).tolist()

    return {"default (KS, chi-square p < 0.05, Bonferroni)": default}


if __name__ == "__main__":
    protocol.main("alibi-detect", speed, flags)
