"""Experiments: what is accepted, and what is wrong with one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from process_experiments import FREEZE, MODEL, injecting
from process_experiments import document as short_experiment

from exporter import cli
from exporter.errors import ConfigError
from loadtests.chaos import experiment
from loadtests.chaos.running.activities import tolerates

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def document(**extension: Any) -> dict[str, Any]:
    target = {"kind": "embedded", "models": [MODEL]}
    return short_experiment(target, injecting(FREEZE, 1.0), **extension)


def problems(given: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        experiment.parse(given, "test")
    return raised.value.problems


@pytest.mark.parametrize("file", experiment.names(), ids=lambda file: file.stem)
def test_a_shipped_experiment_is_valid(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["chaos", "run", file.stem, "--check"]) == 0
    assert capsys.readouterr().out == f"{file.stem}: ok\n"


def test_extensions_of_others_are_kept_and_not_judged() -> None:
    given = document()
    given["extensions"].insert(0, {"name": "theirs", "anything": [1]})
    loaded = experiment.parse(given, "test")
    assert loaded.document["extensions"][0] == {"name": "theirs", "anything": [1]}
    assert loaded.experiment.extension.target.kind == "embedded"


def _unknown_key(whole: dict[str, Any]) -> None:
    whole["extensions"][0]["traget"] = {}


def _unknown_fault(whole: dict[str, Any]) -> None:
    whole["method"][0]["provider"]["arguments"]["fault"] = {"kind": "frees_server"}


def _no_function(whole: dict[str, Any]) -> None:
    del whole["method"][0]["provider"]["func"]


def _program(whole: dict[str, Any]) -> None:
    whole["method"][0]["provider"] = {"type": "process", "path": "true"}


def _function_of_others(whole: dict[str, Any]) -> None:
    whole["method"][0]["provider"]["module"] = "chaosk8s.pod.actions"


def _secrets(whole: dict[str, Any]) -> None:
    whole["secrets"] = {"gateway": {"token": {"type": "env", "key": "TOKEN"}}}


def _no_extension(whole: dict[str, Any]) -> None:
    whole["extensions"] = [{"name": "theirs"}]


def _pattern(whole: dict[str, Any]) -> None:
    probes = whole["steady-state-hypothesis"]["probes"]
    probes[0]["tolerance"] = {"type": "regex", "pattern": "ok"}


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
        (_no_function, "method[0].provider.func: missing; this key is required"),
        (_program, "method[0].provider.type: found \"process\"; want 'python'"),
        (_function_of_others, 'provider.module: found "chaosk8s.pod.actions"; want'),
        (_secrets, "secrets: found unknown key"),
        (_no_extension, "found no extension named tritonwatch"),
        (_pattern, "want a value, a list of values, [low, high], or"),
        (_closed_loop, "invalid profile"),
        (
            _outside_radius,
            "found the fault 'freeze_server' in method[0], which blast_radius.kinds",
        ),
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


@pytest.mark.parametrize(
    ("tolerance", "value", "tolerated"),
    [
        (1, 1, True),
        (1, 1.0, True),
        (1, 2, False),
        (True, True, True),
        (True, 1, False),  # to Chaos Toolkit it is True, which nobody means
        ("ok", "ok", True),
        ("ok", 1, False),
        ([0.5, 1.0], 0.5, True),
        ([0.5, 1.0], 1.0, True),
        ([0.5, 1.0], 1.01, False),
        ({"type": "range", "range": [0.5, 1.0]}, 0.7, True),
        ({"type": "range", "range": [0.5, 1.0]}, 0.4, False),
        ([1, 2, 3], 2, True),
        ([1, 2, 3], 1.5, False),
        (None, 0, True),
    ],
)
def test_a_value_is_tolerated_as_by_chaos_toolkit(
    tolerance: Any, value: Any, tolerated: bool
) -> None:
    assert tolerates(tolerance, value) is tolerated


def test_no_value_is_never_tolerated() -> None:
    assert not tolerates(None, None)
    assert not tolerates([0.0, 1.0], None)
    assert not tolerates([0.0, 1.0], True)
    assert not tolerates([0.0, 1.0], "0.5")
