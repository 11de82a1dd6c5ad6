"""Journals: Chaos Toolkit's own keys, a round trip, and files that are none."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from simulated_outages import Sample, evidence, poisson, run

from loadtests.chaos.measuring.findings import findings
from loadtests.chaos.measuring.observations import (
    AlertChange,
    Check,
    Evidence,
    Record,
    Step,
    as_json,
)
from loadtests.chaos.results import journal_file
from loadtests.chaos.results.journal_file import Journal
from loadtests.errors import PlanError

if TYPE_CHECKING:
    from pathlib import Path

STEP = {"activity", "output", "start", "status", "end", "duration"}
STATE = STEP | {"tolerance_met"}
"""Keys of a step and of a probe's result in Chaos Toolkit's journal."""


def whole(repetition: int = 0, **more: Any) -> Evidence:
    """With something of everything."""
    given: dict[str, Any] = {
        "load": run(poisson(100, 15), refuses=((5.0, 6.0),)),
        "steps": (
            Step(
                5.0,
                0.1,
                "method",
                {"type": "action", "name": "kill"},
                succeeded=True,
                output={"pid": 7},
            ),
            Step(
                6.0,
                0.1,
                "rollbacks",
                {"type": "action", "name": "undo"},
                succeeded=True,
            ),
        ),
        "checks": (
            Check(4.9, "before", "availability", 1.0, met=True),
            Check(5.5, "during", "availability", 0.2, met=False),
            Check(6.0, "during", "availability", None, met=False),
            Check(14.0, "after", "availability", 1.0, met=True),
        ),
        "samples": (
            Sample(1.0, "triton_up", {}, 1.0),
            Sample(2.0, "triton_up", {}, 0.0),
            Sample(1.0, "triton_probe_success", {"model": "m"}, 1.0),
        ),
        "alerts": (AlertChange(8.0, "TritonDown", {"severity": "page"}, "firing"),),
        "alerts_watched": True,
        "leftovers": ("something",),
        "problems": ("another thing",),
        "versions": {"triton": "2.51.0"},
        "repetition": repetition,
        "started_at": 1.7e9 + 60 * repetition,
    }
    return evidence(inject=5.0, revert=6.0, **{**given, **more})


def test_all_that_was_seen_comes_back(tmp_path: Path) -> None:
    before = [whole(0), whole(1)]
    file = tmp_path / "journal.json"
    journal_file.write(file, Journal.of(before))
    after = journal_file.read(file).repetitions
    for old, new in zip(before, after, strict=True):
        assert new.findings == findings(old) == findings(new)
        for part in Evidence.model_fields:
            if part != "load":
                assert getattr(old, part) == getattr(new, part), part
        assert old.load is not None
        assert new.load is not None
        for part in fields(old.load.requests):
            one, other = (getattr(e.load.requests, part.name) for e in (old, new))  # type: ignore[attr-defined]
            assert np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


def test_the_keys_are_those_that_chaos_toolkit_writes() -> None:
    """As `chaoslib.experiment.run_experiment` of chaostoolkit-lib 1.44 returned them."""
    ours = journal_file.to_document(Journal.of([whole()]))
    types = {
        "chaoslib-version": str, "platform": str, "node": str, "experiment": dict,
        "start": str, "status": str, "deviated": bool, "steady_states": dict,
        "run": list, "rollbacks": list, "end": str, "duration": float,
    }  # fmt: skip
    for key, wanted in types.items():
        assert type(ours[key]) is wanted, key
    assert set(ours["steady_states"]) == {"before", "after", "during"}
    for place in ("before", "after"):
        state = ours["steady_states"][place]
        assert set(state) == {"steady_state_met", "probes"}
        assert set(state["probes"][0]) == STATE
    for part in ("run", "rollbacks"):
        assert set(ours[part][0]) == STEP
    assert len(ours["steady_states"]["during"]) == 2
    assert ours["deviated"] is True
    json.dumps(ours, allow_nan=False)


def test_what_json_cannot_hold_does_not_spoil_the_journal(tmp_path: Path) -> None:
    record = Record()
    record.value(1.0, "triton_up", {}, float("nan"))
    for output in (object(), "y" * 10**6):
        record.add(Step(5.0, 0.1, "method", {"x": 1}, succeeded=True, output=output))
    odd = record.evidence(
        {"title": "t", "of": object()},
        origin=None,
        load=None,
        ended=6.0,
        status="completed",
    )
    file = tmp_path / "journal.json"
    journal_file.write(file, Journal.of([odd]))
    (back,) = journal_file.read(file).repetitions
    assert back.series == ()
    assert len(back.steps[1].output) < 20_000


def test_the_worst_status_of_repetitions_is_the_journals() -> None:
    both = [whole(0), whole(1, status="failed")]
    assert journal_file.to_document(Journal.of(both))["status"] == "failed"


def test_a_repetition_in_which_nothing_was_sent_has_a_journal(tmp_path: Path) -> None:
    file = tmp_path / "journal.json"
    journal_file.write(file, Journal.of([whole(load=None)]))
    assert journal_file.read(file).repetitions[0].load is None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is not valid JSON"),
        (b"[1]", "not a journal"),
        (b'{"tritonwatch": {"format": "other"}}', "not a journal"),
        (b'{"tritonwatch": {"format": "tritonwatch-chaos-journal"}}', "repetitions"),
        (b"[" * 100_000, "is not valid JSON"),
        (None, "cannot be read"),
    ],
)
def test_what_is_no_journal_is_refused_with_its_reason(
    tmp_path: Path, content: bytes | None, said: str
) -> None:
    file = tmp_path / "journal.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(PlanError, match=said):
        journal_file.read(file)


def test_a_journal_cut_short_or_changed_is_refused(tmp_path: Path) -> None:
    document = journal_file.to_document(Journal.of([whole()]))
    block = document["tritonwatch"]["repetitions"][0]
    block["load"]["requests"]["count"] += 1
    with pytest.raises(PlanError):
        journal_file.from_document(document)
    block["load"]["requests"]["count"] -= 1
    block["series"][0]["values"].pop()
    with pytest.raises(PlanError, match="found 0 values at 1 times"):
        journal_file.from_document(document)
    block["series"].pop(0)
    block["started_at"] = 1e18  # no date
    with pytest.raises(PlanError, match="started_at"):
        journal_file.from_document(document)
    block["started_at"] = 1.7e9
    block["surprise"] = 1
    with pytest.raises(PlanError, match="surprise"):
        journal_file.from_document(document)


def test_a_journal_of_another_version_is_refused_with_what_to_do() -> None:
    old = {"tritonwatch": {"format": journal_file.FORMAT, "version": 2}}
    with pytest.raises(PlanError, match="has format version 2; this"):
        journal_file.from_document(old)


def test_what_others_return_is_written_whatever_it_is() -> None:
    itself: list[object] = []
    itself.append(itself)
    assert as_json({("a", 1): 2}) == "{('a', 1): 2}"
    assert as_json(itself) == "[[...]]"
    assert as_json({"a": {1}}) == {"a": "{1}"}
