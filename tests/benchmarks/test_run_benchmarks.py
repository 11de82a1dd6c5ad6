"""The runner: what it prints, keeps and returns, on benchmarks made for the purpose."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

RUN = Path(__file__).with_name("run_benchmarks.py")
GOOD = '''
import figures
def fast(*, quick=False):
    """Yields two."""
    for goal in (10.0, 1.0):
        yield figures.at_most(
            f"fast_{goal:g}", unit="s", goal=goal, measured="x", n=7,
            quick=quick, **figures.median([5, 1, 2, 3, 4, 6, 7]),
        )
def plain():
    return {"name": "plain", "value": 1, "unit": "s", "goal": None, "ok": None}
def needs_more(argument):
    raise AssertionError
def _private():
    raise AssertionError
'''
BROKEN = """
import figures
def first_half():
    yield {"name": "before", "value": 1, "unit": "s", "goal": None, "ok": None}
    raise ValueError("half way")
def missing():
    figures.require(found=False, what="sextant", how="buy one")
"""


def bench(
    folder: Path, *arguments: str, **environment: str
) -> tuple[int, list[dict[str, Any]]]:
    where = ("--folder", str(folder), "--results", str(folder / "results"))
    done = subprocess.run(
        [sys.executable, str(RUN), *where, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
        env={**{k: v for k, v in os.environ.items() if k != "CI"}, **environment},
    )
    assert "Warning" not in done.stderr
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def test_every_benchmark_of_a_folder_is_found_measured_and_kept(tmp_path: Path) -> None:
    (tmp_path / "bench_good.py").write_text(GOOD)

    status, figures = bench(tmp_path)

    assert status == 0
    assert [f["name"] for f in figures] == ["fast_10", "fast_1", "plain"]
    assert [f["ok"] for f in figures] == [True, False, None]
    assert (figures[0]["value"], figures[0]["ci_low"], figures[0]["ci_high"]) == (
        4.0,
        1,
        7,
    )
    [file] = (tmp_path / "results").iterdir()
    kept = json.loads(file.read_text())
    assert kept["figures"] == figures
    assert {"cpu", "cores", "memory_bytes", "kernel"} <= kept["hardware"].keys()
    assert {"python", "tritonwatch", "numpy"} <= kept["versions"].keys()
    assert isinstance(kept["seed"], int)


def test_options_choose_what_runs_what_counts_and_what_is_kept(tmp_path: Path) -> None:
    (tmp_path / "bench_good.py").write_text(GOOD)

    assert bench(tmp_path, "--strict", "--discard")[0] == 1
    _, figures = bench(tmp_path, "--quick", "--discard", "--only", "fast")
    assert [f["quick"] for f in figures] == [True, True]
    assert not (tmp_path / "results").exists()
    status, figures = bench(tmp_path, "--only", "d.plain")
    assert (status, [f["name"] for f in figures]) == (0, ["plain"])
    [file] = (tmp_path / "results").iterdir()
    assert file.stem.endswith("-d-plain")
    assert bench(tmp_path, "--only", "no such")[0] == 2


def test_one_that_breaks_is_reported_and_the_others_go_on(tmp_path: Path) -> None:
    (tmp_path / "bench_broken.py").write_text(BROKEN)
    (tmp_path / "bench_damaged.py").write_text("import no_such_module_here\n")
    (tmp_path / "bench_good.py").write_text(GOOD)

    status, figures = bench(tmp_path)

    assert status == 1
    assert [f["name"] for f in figures] == [
        "before",
        "broken.first_half",
        "broken.missing",
        "damaged",
        "fast_10",
        "fast_1",
        "plain",
    ]
    assert figures[1]["error"] == "ValueError: half way"
    assert figures[2]["skipped"] == "found no sextant: buy one"
    assert "no_such_module_here" in figures[3]["error"]


@pytest.mark.parametrize(("ci", "status"), [("false", 0), ("true", 1)])
def test_a_missing_part_is_skipped_but_a_failure_in_ci(
    tmp_path: Path, ci: str, status: int
) -> None:
    (tmp_path / "bench_broken.py").write_text(BROKEN)

    found, [figure] = bench(tmp_path, "--only", "missing", CI=ci)

    assert (found, "error" in figure, "skipped" in figure) == (
        status,
        status == 1,
        status == 0,
    )
