"""Experiments: what is accepted, and what is wrong with one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from process_experiments import FREEZE, MODEL, TOOLKIT, injecting
from process_experiments import document as short_experiment

from exporter import cli
from exporter.errors import ConfigError, EmbeddedTritonError
from loadtests.chaos import experiment
from loadtests.chaos.activities import tolerates
from loadtests.chaos.running.repetition import RunOptions, run
from loadtests.chaos.targets.chaos_target import NotAllowedError

if TYPE_CHECKING:
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


def spoil(whole: Any, path: str, value: Any) -> None:
    """Put a value at a path like "method.0.type"."""
    *parents, last = (int(k) if k.isdigit() else k for k in path.split("."))
    for key in parents:
        whole = whole[key]
    whole[last] = value


INJECT = injecting(FREEZE, 1.0)["provider"]
OURS, STEP = "extensions.0", "method.0"
HYPOTHESIS = document()["steady-state-hypothesis"]["probes"][0]


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (
            *(f"{OURS}.traget", {}),
            "extensions[0].traget: found unknown key; did you mean 'target'?",
        ),
        (
            *(f"{STEP}.provider.arguments.fault", {"kind": "frees_server"}),
            "invalid fault in method[0]",
        ),
        (
            *(f"{STEP}.provider", {"type": "python", "module": TOOLKIT}),
            "method[0].provider.func: missing; this key is required",
        ),
        (
            *(f"{STEP}.provider", {"type": "process", "path": "true"}),
            "method[0].provider.type: found \"process\"; want 'python'",
        ),
        (
            *(f"{STEP}.provider.module", "chaosk8s.pod.actions"),
            'provider.module: found "chaosk8s.pod.actions"; want',
        ),
        ("secrets", {"gateway": {"token": 1}}, "secrets: found unknown key"),
        (
            *("extensions", [{"name": "theirs"}]),
            "found no extension named tritonwatch",
        ),
        (
            *("steady-state-hypothesis.probes.0.tolerance", {"type": "regex"}),
            "want a value, a list of values, [low, high], or",
        ),
        (f"{OURS}.load.profile", {"kind": "closed"}, "invalid profile"),
        (
            *(f"{OURS}.blast_radius", {"kinds": ["kill_stub"]}),
            "found the fault 'freeze_server' in method[0], which blast_radius.kinds",
        ),
        (
            *(
                f"{STEP}.provider.arguments.fault",
                {"kind": "cpu_hog", "longest_seconds": 0.5},
            ),
            "found a pause of 1 s in method[0], whose fault ends after longest_seconds: 0.5",
        ),
        (
            *(f"{STEP}", {**HYPOTHESIS, "tolerance": True}),
            "found a tolerance in method[0], where it is not compared; put the probe in",
        ),
        (
            *("steady-state-hypothesis.probes.0.provider", INJECT),
            "found inject outside of the method",
        ),
        (
            *(f"{STEP}.type", "act"),
            "method[0].type: found \"act\"; did you mean 'action'? Want",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_place(path: str, value: Any, said: str) -> None:
    whole = document()
    spoil(whole, path, value)
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


def test_a_fault_of_the_whole_host_needs_it_on_the_allow_list(tmp_path: Path) -> None:
    target = {"kind": "embedded", "repository": str(tmp_path / "none")}
    given = short_experiment(target, injecting({"kind": "cpu_hog"}, 1.0))
    loaded = experiment.parse(given, "test")
    with pytest.raises(NotAllowedError, match="give --allow host if it may"):
        run(loaded, RunOptions(state=tmp_path))
    with pytest.raises(EmbeddedTritonError, match="found no model repository"):
        run(loaded, RunOptions(state=tmp_path, allow=("host",)))


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
