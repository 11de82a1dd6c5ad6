"""Experiments: Chaos Toolkit's format in both directions, and what is wrong with one."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from process_experiments import FREEZE, MODEL, injecting
from process_experiments import document as short_experiment

from exporter import cli
from exporter.errors import ConfigError
from loadtests.chaos import experiment
from loadtests.chaos.running import foreign
from loadtests.chaos.running.activities import is_simple, tolerates
from loadtests.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SHIPPED = experiment.names()


def document(**extension: Any) -> dict[str, Any]:
    target = {"kind": "embedded", "models": [MODEL]}
    return short_experiment(target, injecting(FREEZE, 1.0), **extension)


def problems(given: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        experiment.parse(given, "test")
    return raised.value.problems


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_a_shipped_experiment_is_one_of_chaos_toolkit_too(file: Path) -> None:
    loaded = experiment.load(file)
    foreign.validate(json.loads(json.dumps(loaded.document)))


def test_an_exported_experiment_is_the_same_when_it_is_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "frozen.yaml"
    file.write_text(yaml.safe_dump(document()))
    assert cli.main(["chaos", "run", str(file), "--export", str(tmp_path)]) == 0
    exported = tmp_path / "frozen.json"
    assert capsys.readouterr().out == f"{exported}\n"
    given = experiment.load(file).document
    assert experiment.load(exported).document == foreign.with_control(given)
    assert foreign.needed_by(experiment.load(exported)) is None
    assert cli.main(["chaos", "run", str(exported), "--check"]) == 0


def test_extensions_of_others_are_kept_and_not_judged() -> None:
    given = document()
    given["extensions"].insert(0, {"name": "theirs", "anything": [1]})
    loaded = experiment.parse(given, "test")
    assert loaded.document["extensions"][0] == {"name": "theirs", "anything": [1]}
    assert loaded.experiment.extension.target is not None


def _unknown_key(whole: dict[str, Any]) -> None:
    whole["extensions"][0]["traget"] = {}


def _unknown_fault(whole: dict[str, Any]) -> None:
    whole["method"][0]["provider"]["arguments"]["fault"] = {"kind": "frees_server"}


def _no_function(whole: dict[str, Any]) -> None:
    del whole["method"][0]["provider"]["func"]


def _closed_loop(whole: dict[str, Any]) -> None:
    whole["extensions"][0]["load"]["profile"] = {"kind": "closed"}


def _outside_radius(whole: dict[str, Any]) -> None:
    whole["extensions"][0]["blast_radius"] = {"kinds": ["kill_stub"]}


def _neither_action_nor_probe(whole: dict[str, Any]) -> None:
    whole["method"][0]["type"] = "act"


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (
            _unknown_key,
            "extensions[0].traget: found unknown key; did you mean 'target'?",
        ),
        (_unknown_fault, "invalid fault in method[0]"),
        (_no_function, "found no func; a python provider needs one"),
        (_closed_loop, "invalid profile"),
        (_outside_radius, "found the fault 'freeze_server' in method[0], outside of"),
        (
            _neither_action_nor_probe,
            "method[0].type: found \"act\"; did you mean 'action'? Want",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_place(
    spoil: Callable[[dict[str, Any]], None], said: str
) -> None:
    whole = document()
    spoil(whole)
    found = problems(whole)
    assert any(said in problem for problem in found), found


def test_every_problem_is_told_at_once() -> None:
    whole = document(seed=-1, repetitions=0)
    del whole["title"]
    found = problems(whole)
    assert [text.split(":")[0] for text in found] == [
        "title",
        "extensions[0].seed",
        "extensions[0].repetitions",
    ]


def test_a_name_that_is_not_shipped_is_told_with_those_that_are() -> None:
    with pytest.raises(ConfigError, match="found no experiment of this name"):
        experiment.find("no-such")


def test_without_the_library_the_way_to_it_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "chaoslib.experiment", None)
    with pytest.raises(PlanError, match=r"pip install 'tritonwatch\[chaos\]'"):
        foreign.validate(document())


TOLERANCES = st.one_of(
    st.integers(-2, 2),  # it has no answer to a scalar that is no whole number
    st.booleans(),
    st.text(max_size=2),
    st.lists(st.floats(-2, 2), min_size=2, max_size=2).map(sorted),
    st.lists(st.floats(-2, 2), min_size=2, max_size=2)
    .map(sorted)
    .map(lambda pair: {"type": "range", "range": pair}),
)


@given(TOLERANCES, st.one_of(st.floats(-2, 2), st.integers(-2, 2)))
def test_a_number_is_tolerated_as_by_chaos_toolkit(tolerance: Any, value: Any) -> None:
    within = foreign.library("hypothesis", "this test").within_tolerance
    assert is_simple(tolerance)
    if isinstance(tolerance, bool):  # there `1` is `True`, which nobody means
        assert not tolerates(tolerance, value)
        return
    try:
        theirs = within(tolerance, value, {}, {})
    except Exception:  # noqa: BLE001 - theirs raises several for text beside numbers
        theirs = False
    assert tolerates(tolerance, value) == bool(theirs)


def test_no_value_is_never_tolerated() -> None:
    assert not tolerates(None, None)
    assert not tolerates([0.0, 1.0], None)
    assert not tolerates([0.0, 1.0], True)
    assert not tolerates([0.0, 1.0], "0.5")
