"""The first limit that a saturated server reaches."""

from __future__ import annotations

import pytest

from loadtests.capacity.server_side import Phases, saturated
from loadtests.machine_guard import GuardLimits, Watch, Window


def machine(sender: float, server: float | None) -> Watch:
    window = Window(0.0, 1.0, 0.0, 0.0, 0.0, sender, server, 0.0)
    return Watch((window,), GuardLimits())


def server(queue_seconds: float, busy: float) -> Phases:
    """One whose requests take 10 ms beside the queue."""
    return Phases(queue_seconds, 0.001, 0.008, 0.001, 100, 1.0, busy)


IDLE = machine(0.1, 0.1)
QUEUED = server(0.02, 1.5)


@pytest.mark.parametrize(
    ("phase", "watch", "instances", "expected"),
    [
        (QUEUED, machine(0.81, 4.0), 2, "sender"),
        (QUEUED, machine(0.8, 3.41), 2, "server cpu"),
        (QUEUED, machine(0.8, 3.4), 2, "compute"),
        (QUEUED, machine(0.8, None), 2, "compute"),
        (QUEUED, None, 2, "compute"),
        (None, IDLE, 2, "unknown"),
        (server(0.02, 1.41), IDLE, 2, "compute"),
        (server(0.02, 1.4), IDLE, 2, "queue"),
        # How many instances there are is not known.
        (QUEUED, IDLE, None, "queue"),
        (server(0.0044, 0.1), IDLE, 2, "queue"),
        (server(0.0042, 0.1), IDLE, 2, "unknown"),
    ],
)
def test_the_first_of_sender_processors_instances_and_queue_is_named(
    phase, watch, instances, expected
) -> None:
    found = saturated(phase, watch, instances=instances, cpus=4)
    assert found.resource == expected


def test_the_evidence_has_the_figures() -> None:
    assert saturated(QUEUED, IDLE, instances=2, cpus=4).evidence == (
        "its 2 instances executed 75 % of the time; 66.7 % of a request's time in the server "
        "was spent in the queue (20 ms; compute 10 ms)"
    )
