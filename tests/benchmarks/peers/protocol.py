"""What every peer's script does: read the folder, measure, print one JSON object.

Runs inside the peer's own environment: the standard library and numpy only.

    speed.npz    reference_x reference_c window_x window_c
    clean_N.npz  reference_x reference_c and windows stacked: x (windows, N, 16), c
    shift_*.npz  the same, the first feature shifted
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

Rows = tuple[np.ndarray, np.ndarray]
Act = Callable[[], object]
Flagger = Callable[[np.ndarray, np.ndarray], list[bool]]

REPEATS = 2


def main(
    distribution: str,
    speed: Callable[[Rows, Rows], dict[str, Act]],
    flags: Callable[[Rows], dict[str, Flagger]],
) -> None:
    """`speed` names acts to time on a window; `flags` fits rules on a reference, each
    telling which features of a window it flags."""
    warnings.simplefilter("ignore")
    folder = Path(sys.argv[1])
    found: dict[str, Any] = {
        "version": importlib.metadata.version(distribution),
        "seconds": {},
        "flags": {},
    }
    data = np.load(folder / "speed.npz")
    sides = [(data[f"{side}_x"], data[f"{side}_c"]) for side in ("reference", "window")]
    for name, act in speed(*sides).items():
        found["seconds"][name] = timed(act)
    for path in sorted(folder.glob("*_*.npz")):
        data = np.load(path)
        rules = flags((data["reference_x"], data["reference_c"]))
        found["flags"][path.stem] = {
            name: [list(map(bool, rule(x, c))) for x, c in windows(data)]
            for name, rule in rules.items()
        }
    print("\n" + json.dumps(found))


def timed(act: Act) -> dict[str, float]:
    """Least CPU and wall seconds of a few runs, the first left out."""
    act()
    spent = []
    for _ in range(REPEATS):
        wall, cpu = time.perf_counter(), time.process_time()
        act()
        spent.append((time.process_time() - cpu, time.perf_counter() - wall))
    return {"cpu": min(c for c, _ in spent), "wall": min(w for _, w in spent)}


def windows(data: Any) -> Iterator[Rows]:
    """The stacked windows, one after the other."""
    yield from zip(data["x"], data["c"], strict=True)


def names(x: np.ndarray, c: np.ndarray) -> list[str]:
    """Column names: numbers first."""
    return [f"x{i}" for i in range(x.shape[1])] + [f"c{i}" for i in range(c.shape[1])]


def frame(x: np.ndarray, c: np.ndarray) -> Any:
    """A pandas frame with categories as text."""
    import pandas as pd  # noqa: PLC0415 - only the peers have it

    columns: dict[str, Any] = {f"x{i}": x[:, i] for i in range(x.shape[1])}
    columns |= {f"c{i}": c[:, i].astype(str) for i in range(c.shape[1])}
    return pd.DataFrame(columns)
