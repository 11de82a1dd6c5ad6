"""A profile on the real Triton; wrong usage of a capacity search."""

from __future__ import annotations

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
