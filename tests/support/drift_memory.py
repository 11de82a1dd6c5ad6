"""What a watch of many features takes of a process: run as a program, prints kB a feature.

The rows, what is imported, and what does not grow with the features (a part's passes) are
there before, so that the difference is the features' own.
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path

import numpy as np

from drift.features import Schema, Tensor
from drift.fitting import fit
from drift.reference import Profile
from exporter.collectors.drift_settings import DriftSettings
from exporter.collectors.drift_watch import Watch

ROWS = 2048
SMALL = 32
SETTINGS = DriftSettings.model_validate(
    {"learn": {}, "window": {"rows": 1, "seconds": 1}}
)


class Clock:
    """Turned by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def resident(field: str) -> float:
    """`VmRSS` or `VmHWM` of this process, in kB of 1,000 bytes."""
    status = Path("/proc/self/status").read_text("utf-8")
    return int(status.split(f"{field}:")[1].split()[0]) * 1.024


def forget_peak() -> None:
    """`VmHWM` begins anew."""
    Path("/proc/self/clear_refs").write_text("5")


def rows(features: int, number: int) -> np.ndarray:
    """Of independent normal columns."""
    rng = np.random.default_rng(features)
    return rng.normal(size=(number, features)).astype(np.float32)


def reference(features: int) -> bytes:
    """The file of a reference of 1,500 rows."""
    schema = Schema.from_tensors([Tensor("x", "FP32", (features,))])
    return fit(schema, {"x": rows(features, 1500)}).to_bytes()


def live(profile: bytes, data: np.ndarray, windows: int) -> Watch:
    """A watch that has judged so many windows and saved itself after each."""
    clock = Clock()
    watch = Watch(Profile.from_bytes(profile), SETTINGS, clock=clock)
    for _ in range(windows):
        for start in range(0, ROWS, 64):
            watch.put({"x": data[start : start + 64]})
        clock.now += 2.0
        watch.step()
        for part in watch.state():
            assert len(part)
    return watch


def main(features: int, profile: Path, small: Path) -> None:
    """Print resident and peak memory of a feature as JSON."""
    data = profile.read_bytes()
    traffic = rows(features, ROWS)
    live(small.read_bytes(), traffic[:, :SMALL], 3)
    gc.collect()
    before = resident("VmRSS")
    forget_peak()
    watch = live(data, traffic, 24)
    # Years later all starts are remembered that ever are: every page of them is there.
    watch._monitor._ledger._since += 0.0
    found = {
        "resident": (resident("VmRSS") - before) / features,
        "peak": (resident("VmHWM") - before) / features,
        "state": sum(len(part) for part in watch.state()) / features / 1e3,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    if sys.argv[1] == "--reference":
        Path(sys.argv[3]).write_bytes(reference(int(sys.argv[2])))
    else:
        main(int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
