"""Two profiles, briefly, over each protocol on the real Triton; and a capacity search."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest

from exporter.cli import main
from loadtests.execute import execute
from loadtests.profiles.profile import arrivals_of
from loadtests.result import Outcome
from loadtests.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.triton


def test_a_scenario_sends_the_schedule_of_its_profile_and_seed(
    loaded, mix_of, target_of
) -> None:
    target = target_of(loaded, "grpc")
    scenario = Scenario.model_validate(
        {
            "target": {"address": target.address},
            "models": [{"model": "double"}],
            "profile": {"kind": "steps", "steps": 3, "step_seconds": 0.2},
            "seed": 5,
        }
    )
    requests = execute(scenario, mix_of(target, "double")).requests
    assert np.array_equal(requests.intended, arrivals_of(scenario.profile, 5))
    assert requests.count(Outcome.OK) == len(requests) > 0


class Ended(NamedTuple):
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def capacity(capsys) -> Callable[..., Ended]:
    """`tritonwatch load capacity` in this process: a start of its own takes seconds."""

    def run(server, *options: str, model: str = "slow") -> Ended:
        status = main(
            ["load", "capacity", "--address", server.grpc, "--model", model, *options]
        )
        return Ended(status, *capsys.readouterr())

    return run


@pytest.mark.slow
def test_a_short_search_ends_with_a_report_whatever_the_machine_does(
    loaded, capacity, tmp_path, capsys
) -> None:
    found = capacity(
        loaded, "--slo", "p99<60ms,errors<1%", "--budget", "5", "--run-seconds", "1",
        "--json", str(tmp_path / "c.json"), "--html",
        str(tmp_path / "c.html"),
    )  # fmt: skip
    assert found.returncode in {0, 1, 3}, found.stderr
    report = json.loads((tmp_path / "c.json").read_text("utf-8"))
    assert report["slo"] == "p99<60ms,errors<1%"
    assert len(report["schedule_sha256"]) == 64
    if found.returncode == 3:
        assert (
            report["reasons"]
            or "not enough data" in report["conclusion"]
            or (report["capacity"]["requests_per_second"]["high"] is None)
        )
    # `slow` sleeps 5 ms at a time: it cannot take more than 200 a second.
    if report["capacity"]:
        assert 10 < report["capacity"]["requests_per_second"]["estimate"] < 220
    page = (tmp_path / "c.html").read_text("utf-8")
    assert "Capacity of slow" in page
    main(["load", "report", str(tmp_path / "c.json")])
    assert report["conclusion"] in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "found no --slo"),
        (("--slo", "p99<20"), "no unit"),
        (("--slo", "p99<1s", "--repetitions", "2"), "greater than or equal to 3"),
        (("--slo", "p99<1s", "--json", "/nowhere/c.json"), "no such folder: /nowhere"),
    ],
)
def test_wrong_usage_says_what_would_be_right(loaded, capacity, options, said) -> None:
    found = capacity(loaded, *options)
    assert found.returncode == 2
    assert said in found.stderr
