"""What drift costs the sidecar: a mirrored request, a judged window, a saved state."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import figures
import numpy as np
from clocks import Clock

from drift.features import Schema, Tensor
from drift.fitting import fit
from exporter.features.drift.drift_settings import DriftSettings
from exporter.features.drift.drift_tensors import Rows, declared
from exporter.features.drift.drift_watch import Watch
from exporter.triton.model import ModelSpec, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from figures import Figure
    from numpy.typing import NDArray

FEATURES = 50
REQUESTS = 4096


def _rows(rng: np.random.Generator, number: int) -> NDArray[np.float32]:
    return rng.normal(size=(number, FEATURES)).astype(np.float32)


def watch(*, quick: bool = False) -> Iterator[Figure]:
    """Requests of one row x 50 floats after parsing; windows of 500; the state."""
    rng = np.random.default_rng(figures.SEED)
    schema = Schema.from_tensors([Tensor("x", "FP32", (FEATURES,))])
    clock = Clock()
    settings = DriftSettings.model_validate(
        {"learn": {}, "window": {"rows": 1, "seconds": 1}}
    )
    watched = Watch(fit(schema, {"x": _rows(rng, 10_000)}), settings, clock=clock)
    spec = ModelSpec("m", "1", (TensorSpec("x", "FP32", (-1, FEATURES)),), (), 8)
    rows = Rows(schema, declared(spec, "inputs"))
    one = {"x": _rows(rng, 1)}
    window = {"x": _rows(rng, 500)}
    putting, judging = [], []
    for _ in range(8 if quick else 60):
        started = time.process_time()
        for _ in range(REQUESTS):
            watched.put(rows.of(one))
        putting.append((time.process_time() - started) / REQUESTS * 1e6)
        clock.now += 2.0
        watched.step()
    for _ in range(20 if quick else 100):
        watched.put(rows.of(window))
        clock.now += 2.0
        started = time.process_time()
        watched.step()
        judging.append((time.process_time() - started) * 1e3)
    for name, spent, unit, goal, measured in (
        (
            "put",
            putting,
            "us/request",
            5.0,
            "a parsed request of 1 row x 50 floats, with its lock, into the window",
        ),
        (
            "judge",
            judging,
            "ms/window",
            25.0,
            "a window of 500 rows x 50 floats: evidence, alarm, four distances, nulls",
        ),
    ):
        found = figures.median(spent)
        yield figures.at_most(
            f"drift.sidecar.{name}",
            found.pop("value"),
            unit,
            goal,
            measured=measured,
            n=len(spent),
            seed=figures.SEED,
            **found,
        )
    yield figures.at_most(
        "drift.sidecar.state",
        len(b"".join(watched.state())) / FEATURES / 1e3,
        "kB/feature",
        12.0,
        measured="the file that survives a restart, all merged levels in it",
        n=1,
    )
