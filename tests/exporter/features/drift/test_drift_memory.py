"""A watched feature takes at most 32 kB of the process, at every moment of its life."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from drift import window
from drift.features import Schema, Tensor
from drift.fitting import fit

PROGRAM = Path(__file__).parents[3] / "support" / "drift_memory.py"
FEATURES = {
    "numbers": 500,
    "few texts": 120,
    "many texts": 120,
    "many integers": 120,
    "endless texts": 120,
}
MOST_KB = 32.0
MOST_STATE_KB = 12.0


def program(*arguments):
    command = [sys.executable, PROGRAM, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize(
    "kind",
    [
        "numbers",
        "few texts",
        "endless texts",
        pytest.param("many texts", marks=pytest.mark.slow),
        pytest.param("many integers", marks=pytest.mark.slow),
    ],
)
def test_hundreds_of_features_stay_within_their_memory_when_judged_and_saved(
    kind, tmp_path
):
    many, few = tmp_path / "many.json", tmp_path / "few.json"
    program("--reference", kind, str(FEATURES[kind]), many)
    program("--reference", kind, "32", few)
    found = json.loads(program(kind, str(FEATURES[kind]), many, few))
    # The ledger's starts (6) and the ring of rows (4): the measurement sees them.
    assert found["resident"] > 10
    assert found["resident"] <= found["peak"] <= MOST_KB
    assert found["state"] <= MOST_STATE_KB


def test_cells_that_no_longer_fit_into_32_bits_are_widened(monkeypatch):
    schema = Schema.from_tensors(
        [Tensor("x", "FP32", (2,)), Tensor("c", "BYTES", (1,))]
    )
    rng = np.random.default_rng(0)
    data = {
        "x": rng.normal(size=(500, 2)).astype(np.float32),
        "c": rng.choice(np.array([b"a", b"b"], object), (500, 1)),
    }
    profile = fit(schema, data)
    narrow, wide = profile.accumulator(), profile.accumulator()
    narrow.update(data)
    wanted = narrow.take()
    monkeypatch.setattr(window, "_MOST_NARROW", 100)
    for start in range(0, 500, 50):
        wide.update({name: rows[start : start + 50] for name, rows in data.items()})
        wide.peek()
    found = wide.take()
    assert (wanted.cells.dtype, found.cells.dtype) == (np.uint32, np.int64)
    assert np.array_equal(found.cells, wanted.cells)


def test_sums_of_narrow_counts_do_not_overflow():
    cells = np.full((1, window.CELLS), (1 << 32) - 1, np.uint32)
    counts = window.Counts(cells, (1 << 32) - 1, 1)
    total = counts + counts
    assert total.cells.max() == 2 * ((1 << 32) - 1)
