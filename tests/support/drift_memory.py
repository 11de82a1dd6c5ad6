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
from clocks import Clock

from drift.features import Feature, Schema, Tensor
from drift.fitting import fit
from drift.reference import Profile
from exporter.features.drift.drift_settings import DriftSettings
from exporter.features.drift.drift_watch import Watch
from exporter.system.memory import use_few_arenas

ROWS = 2048
SMALL = 32
SETTINGS = DriftSettings.model_validate(
    {"learn": {}, "window": {"rows": 1, "seconds": 1}}
)


def resident(field: str) -> float:
    """`VmRSS` or `VmHWM` of this process, in kB of 1,000 bytes."""
    status = Path("/proc/self/status").read_text("utf-8")
    return int(status.split(f"{field}:")[1].split()[0]) * 1.024


def forget_peak() -> None:
    """`VmHWM` begins anew."""
    Path("/proc/self/clear_refs").write_text("5")


NUMBERS = "numbers"
VALUES = {
    "few texts": 20,
    "many texts": 1152,
    "many integers": 1152,
    "endless texts": 0,
}
"""Different values of a category; of endless texts each row has its own."""


def rows(kind: str, features: int, number: int) -> np.ndarray:
    """Of independent columns: normal numbers, or categories."""
    rng = np.random.default_rng(features)
    if kind == NUMBERS:
        return rng.normal(size=(number, features)).astype(np.float32)
    places = rng.integers(0, VALUES[kind] or 1 << 60, (number, features))
    if kind == "many integers":
        return places
    texts = [b"%012d" % place for place in places.reshape(-1)]
    return np.array(texts, object).reshape(number, features)


def reference(kind: str, features: int) -> bytes:
    """The file of a reference that has every value."""
    datatype = {NUMBERS: "FP32", "many integers": "INT64"}.get(kind, "BYTES")
    schema = Schema.from_tensors([Tensor("x", datatype, (features,))])
    if kind != NUMBERS:
        columns = (Feature(f"x[{i}]", "x", i, "categorical") for i in range(features))
        schema = Schema(schema.tensors, tuple(columns))
    data = rows(kind, features, 1500)
    if VALUES.get(kind):
        data = rows(kind, features, 1500 + VALUES[kind])
        every = np.arange(VALUES[kind])
        if datatype == "BYTES":
            every = np.array([b"%012d" % value for value in every], object)
        data[: VALUES[kind]] = every[:, None]
    return fit(schema, {"x": data}).to_bytes()


def live(profile: bytes, data: np.ndarray, windows: int) -> Watch:
    """A watch that has judged so many windows and saved itself after each.

    What a sender's rows were is gone with its request, so each gets objects of its own.
    """
    clock = Clock()
    watch = Watch(Profile.from_bytes(profile), SETTINGS, clock=clock)
    for _ in range(windows):
        for start in range(0, ROWS, 64):
            watch.add({"x": copied(data[start : start + 64])})
        clock.now += 2.0
        watch.step()
        watch.state()
    return watch


def copied(data: np.ndarray) -> np.ndarray:
    """Rows as a request brings them."""
    if data.dtype != object:
        return data
    texts = [bytes(bytearray(text)) for text in data.reshape(-1)]
    return np.array(texts, object).reshape(data.shape)


def main(kind: str, features: int, profile: Path, small: Path) -> None:
    """Print resident and peak memory of a feature as JSON."""
    data = profile.read_bytes()
    traffic = rows(kind, features, ROWS)
    live(small.read_bytes(), traffic[:, :SMALL], 3)
    gc.collect()
    before = resident("VmRSS")
    forget_peak()
    watch = live(data, traffic, 24 if kind == NUMBERS else 3)
    # Years later all starts are remembered that ever are: every page of them is there.
    watch._monitor._ledger._since += 0.0
    found = {
        "resident": (resident("VmRSS") - before) / features,
        "peak": (resident("VmHWM") - before) / features,
        "state": sum(len(part) for part in watch.state()) / features / 1e3,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    use_few_arenas()  # as `serve` does; glibc's own settings keep some 5 kB more
    if sys.argv[1] == "--reference":
        Path(sys.argv[4]).write_bytes(reference(sys.argv[2], int(sys.argv[3])))
    else:
        main(sys.argv[1], int(sys.argv[2]), *map(Path, sys.argv[3:]))
