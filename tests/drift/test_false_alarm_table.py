"""The page's table of false alarms is the one that was measured, and within the promise."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

from passages import page_with

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "tests" / "benchmarks" / "false_alarms.py"


def program():
    spec = importlib.util.spec_from_file_location("false_alarms_table", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_is_the_one_that_was_measured():
    made = program()
    page = made.PAGE.read_text("utf-8")
    shown = made.table(made.MEASURED.read_text("utf-8"))
    assert page_with(made.PASSAGE, shown, page) == page


def test_every_kind_of_traffic_keeps_the_promise_over_hundreds_of_runs():
    chunks = [json.loads(line) for line in program().MEASURED.read_text().splitlines()]
    kinds = {}
    for chunk in chunks:
        key = tuple(v for k, v in chunk.items() if k in {"reference", "rows", "name"})
        kinds.setdefault((*key, chunk.get("stretch")), []).append(chunk)
    assert len(kinds) == 12
    for kind, own in kinds.items():
        windows, alarms = (sum(c[key] for c in own) for key in ("windows", "alarms"))
        allowed = 2.0 if isinstance(kind[0], str) else 1.0
        assert 1000 * alarms / windows <= allowed, kind
        assert sum(c["runs"] for c in own) >= 200
        # No run is counted twice.
        spans = sorted((c["first"], c["first"] + c["runs"]) for c in own)
        ends = [end for _, end in spans]
        assert [begin for begin, _ in spans] == [0, *ends[:-1]]
