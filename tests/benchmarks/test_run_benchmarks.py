"""The runner: what it prints, keeps and returns, on benchmarks made for the purpose."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

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


def test_all_of_a_folder_run_although_one_breaks_and_are_kept(tmp_path: Path) -> None:
    (tmp_path / "bench_broken.py").write_text(BROKEN)
    (tmp_path / "bench_damaged.py").write_text("import no_such_module_here\n")
    (tmp_path / "bench_good.py").write_text(GOOD)

    status, figures = bench(tmp_path)

    assert status == 1
    before, broken, missing, damaged, fast, fast_1, plain = figures
    assert before["name"] == "before"
    assert broken["name"] == "broken.first_half"
    assert broken["error"] == "ValueError: half way"
    assert missing["skipped"] == "found no sextant: buy one"
    assert "no_such_module_here" in damaged["error"]
    assert (fast["value"], fast["ci_low"], fast["ci_high"]) == (4.0, 1, 7)
    assert [f["ok"] for f in (fast, fast_1, plain)] == [True, False, None]
    [file] = (tmp_path / "results").iterdir()
    kept = json.loads(file.read_text())
    assert kept["figures"] == figures
    assert {"cpu", "cpus", "memory_bytes", "kernel"} <= kept["hardware"].keys()
    assert {"python", "tritonwatch", "numpy"} <= kept["versions"].keys()
    assert isinstance(kept["seed"], int)


def test_options_choose_what_runs_what_counts_and_what_is_kept(tmp_path: Path) -> None:
    (tmp_path / "bench_good.py").write_text(GOOD)

    status, figures = bench(
        tmp_path, "--strict", "--quick", "--discard", "--only", "fast"
    )
    assert status == 1
    assert [f["quick"] for f in figures] == [True, True]
    assert not (tmp_path / "results").exists()
    status, figures = bench(tmp_path, "--only", "d.plain")
    assert (status, [f["name"] for f in figures]) == (0, ["plain"])
    [file] = (tmp_path / "results").iterdir()
    assert file.stem.endswith("-d-plain")
    assert bench(tmp_path, "--only", "no such")[0] == 2


def test_a_missing_part_is_a_failure_in_ci(tmp_path: Path) -> None:
    (tmp_path / "bench_broken.py").write_text(BROKEN)

    status, [figure] = bench(tmp_path, "--only", "missing", CI="true")

    assert (status, "error" in figure) == (1, True)
