"""The same windows through the peers: how long they take, how often they cry wolf.

Each peer runs in an environment of its own under build/peers, which
`python tests/benchmarks/peers/install.py` makes; one that is not there is left out. The
whole result is kept in build/peers/measured.json; `peers/table.py` makes the table of
drift/README.md of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import figures
import numpy as np
from drifting import BUDGET, MIXED, counted, draw
from peers.install import ENVIRONMENTS, PEERS

from drift import statistics
from drift.alarms.monitor import Monitor
from drift.comparison import Baseline
from drift.features import Feature, Schema, Tensor
from drift.fitting import fit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from figures import Figure
    from numpy.typing import NDArray

HERE = Path(__file__).resolve().parent / "peers"
KEPT = ENVIRONMENTS / "measured.json"
TABLE = Schema(
    (Tensor("x", "FP32", (50,)), Tensor("c", "INT64", (10,))),
    (
        *(Feature(f"x{i}", "x", i) for i in range(50)),
        *(Feature(f"c{i}", "c", i, "categorical") for i in range(10)),
    ),
)
OURS = "tritonwatch"
DEADLINE_SECONDS = 900.0
# Name, rows of a window, windows, shift of the first feature.
STREAMS = (
    ("clean_100", 100, 100, 0.0),
    ("clean_500", 500, 100, 0.0),
    ("clean_5000", 5000, 30, 0.0),
    ("shift_0.1", 500, 60, 0.1),
    ("shift_0.25", 500, 60, 0.25),
)
DISTANCES = (
    statistics.Psi(),
    statistics.JensenShannon(),
    statistics.KolmogorovSmirnov(),
    statistics.Wasserstein(),
)


def speed_and_flags(*, quick: bool = False) -> Iterator[Figure]:
    """100,000 x (50 floats + 10 categories), and clean windows of 20 mixed features."""
    there = [peer for peer in PEERS if (ENVIRONMENTS / peer / ".ready").exists()]
    if not there:
        raise figures.Skipped(
            "found no peer's environment under build/peers: "
            "python tests/benchmarks/peers/install.py"
        )
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _write_streams(folder, quick=quick)
        flags = {OURS: _shares(_our_flags(folder))}
        measured: dict[str, Any] = {"flags": flags, "peers": {}}
        spent: list[float] = []
        for peer in there:
            spent += _our_seconds(folder, 5)
            measured["peers"][peer] = _run(peer, folder)
            spent += _our_seconds(folder, 5)
    measured["ours_cpu_seconds"] = figures.median(spent)
    measured["versions"] = figures.versions("numpy", "scipy")
    measured["windows"] = {name: count for name, _, count, _ in _streams(quick=quick)}
    if not quick:
        KEPT.write_text(json.dumps(measured, indent=1, sort_keys=True) + "\n", "utf-8")
    yield from _ratios(measured)
    yield from _false_flags(measured)


def _streams(*, quick: bool) -> list[tuple[str, int, int, float]]:
    return [
        (name, rows, max(count // 20, 3) if quick else count, shift)
        for name, rows, count, shift in STREAMS
    ]


def _write_streams(folder: Path, *, quick: bool) -> None:
    rng = np.random.default_rng(figures.SEED)

    def table() -> dict[str, NDArray[np.generic]]:
        return {
            "x": rng.normal(size=(100_000, 50)).astype(np.float32),
            "c": rng.integers(0, 20, size=(100_000, 10)),
        }

    sides = {"reference": table(), "window": table()}
    np.savez(
        folder / "speed.npz",
        **{f"{side}_{k}": v for side, rows in sides.items() for k, v in rows.items()},
    )
    for name, rows, count, shift in _streams(quick=quick):
        reference = draw(rng, 10_000)
        stacked = [draw(rng, rows, shift=shift) for _ in range(count)]
        np.savez(
            folder / f"{name}.npz",
            reference_x=reference["x"],
            reference_c=reference["c"],
            x=np.stack([each["x"] for each in stacked]),
            c=np.stack([each["c"] for each in stacked]),
        )


def _our_seconds(folder: Path, times: int) -> list[float]:
    """CPU seconds of quality and four distances from the rows; the reference is fit."""
    data = np.load(folder / "speed.npz")
    baseline = Baseline(
        fit(TABLE, {"x": data["reference_x"], "c": data["reference_c"]})
    )
    window = {"x": data["window_x"], "c": data["window_c"]}
    spent = []
    for _ in range(times + 1):
        started = time.process_time()
        comparison = baseline.compare(counted(baseline.profile, window))
        for statistic in DISTANCES:
            statistic.distance(comparison)
        spent.append(time.process_time() - started)
    return spent[1:]


def _our_flags(folder: Path) -> dict[str, list[list[bool]]]:
    """Which features an alarm names, window by window of one stream."""
    found = {}
    for path in sorted(folder.glob("*_*.npz")):
        data = np.load(path)
        profile = fit(MIXED, {"x": data["reference_x"], "c": data["reference_c"]})
        monitor = Monitor(profile, BUDGET)
        found[path.stem] = []
        for x, c in zip(data["x"], data["c"], strict=True):
            verdict = monitor.update(counted(profile, {"x": x, "c": c}))
            named = {culprit.feature for culprit in verdict.culprits}
            found[path.stem].append([n in named for n in profile.schema.names])
    return found


def _run(peer: str, folder: Path) -> dict[str, Any]:
    python = ENVIRONMENTS / peer / "bin" / "python"
    done = subprocess.run(
        [str(python), str(HERE / f"{peer}_peer.py"), str(folder)],
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_SECONDS,
        env={**os.environ, "DO_NOT_TRACK": "1", "WHYLOGS_NO_ANALYTICS": "True"},
    )
    if done.returncode:
        raise RuntimeError(
            f"{peer} ended with {done.returncode}: {done.stderr[-2000:]}"
        )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    rules = next(iter(result["flags"].values()))
    result["flags"] = {
        rule: _shares({stream: by[rule] for stream, by in result["flags"].items()})
        for rule in rules
    }
    return result


def _shares(flags: dict[str, list[list[bool]]]) -> dict[str, dict[str, float]]:
    """Of every stream's windows: with any flag, and with one on the first feature."""
    return {
        stream: {
            "any": float(np.mean([any(window) for window in windows])),
            "first": float(np.mean([window[0] for window in windows])),
        }
        for stream, windows in flags.items()
    }


def _ratios(measured: dict[str, Any]) -> Iterator[Figure]:
    """Ours over theirs, so that the goals are at most 1/5 and 1/250."""
    ours = measured["ours_cpu_seconds"]["value"]
    every = {
        f"{peer}: {name}": seconds["cpu"]
        for peer, found in measured["peers"].items()
        for name, seconds in found["seconds"].items()
    }
    fastest = min(every, key=every.__getitem__)
    report = "evidently: default report"
    for name, theirs, goal in (
        ("fastest_statistic", fastest, 1 / 5),
        ("default_report", report, 1 / 250),
    ):
        if theirs not in every:
            continue
        yield figures.at_most(
            f"peers.{name}",
            ours / every[theirs],
            "of the peer's CPU seconds",
            goal,
            measured="100,000 x (50 floats + 10 categories): our quality and four "
            "distances, CPU seconds over the peer's",
            n=10 * len(measured["peers"]),
            peer=every[theirs],
            peer_name=theirs,
            ratio=ours / every[theirs],
            seed=figures.SEED,
        )


def _false_flags(measured: dict[str, Any]) -> Iterator[Figure]:
    rules = {OURS: measured["flags"][OURS]} | {
        peer: shares
        for peer, found in measured["peers"].items()
        for shares in found["flags"].values()
    }
    for tool, shares in rules.items():
        share = shares["clean_500"]["any"]
        yield figures.at_most(
            f"peers.false_flags.{tool}",
            share,
            "of clean windows",
            0.01 if tool == OURS else None,
            measured="windows of 500 of 20 unchanged features with at least one flagged",
            n=measured["windows"]["clean_500"],
            seed=figures.SEED,
        )
