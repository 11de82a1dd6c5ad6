"""Whether a sidecar spoke of trouble that was over, for every fault of an experiment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest
from simulated_outages import Sample, evidence, poisson, polled_up, run

from loadtests.chaos.measuring.findings import Findings, findings
from loadtests.chaos.measuring.observations import Event

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadtests.chaos.measuring.observations import Evidence

SECONDS: Final = 40.0
LOOKS: Final = np.arange(0.0, SECONDS, 0.25).tolist()
WANTED: Final = {"metric": "triton_up == 0", "within_seconds": 2}

Spans = tuple[tuple[float, float], ...]


def said(
    *trouble: tuple[float, float],
    metric: str = "triton_up",
    to: float = SECONDS,
    **labels: str,
) -> tuple[Sample, ...]:
    """What the sidecar said every quarter of a second: 0 in these spans of time."""

    return tuple(
        Sample(at, metric, labels, float(not any(a <= at < b for a, b in trouble)))
        for at in LOOKS
        if at < to
    )


def every(seconds: float, probe: str = "synthetic") -> Sample:
    return Sample(0.0, "triton_probe_interval_seconds", {"probe": probe}, seconds)


def fault(kind: str, start: float, end: float) -> tuple[Event, ...]:
    return (
        Event(start, "inject", {"kind": kind}),
        Event(start, "injected", {"kind": kind}),
        Event(end, "reverted", {"kind": kind}),
    )


def seen(
    samples: Sequence[Sample],
    *events: Event,
    outages: Spans = (),
    wanted: dict[str, Any] = WANTED,
) -> Evidence:
    hurt = outages or tuple(
        (event.at_seconds, over.at_seconds)
        for event, over in zip(events[::3], events[2::3], strict=True)
    )
    found = evidence(
        run(poisson(200, SECONDS), refuses=hurt),
        extension={"detect": wanted},
        samples=(every(1.0), *polled_up(SECONDS), *samples),
    )
    return found.model_copy(update={"events": events})


def told(found: Findings) -> bool | None:
    assert found.sidecar is not None
    return found.sidecar.over_in_time


FROZEN: Final = fault("freeze_server", 5.0, 16.0)


TWICE: Final = (
    *fault("freeze_server", 5.0, 6.5),
    *fault("freeze_server", 20.0, 21.5),
)


@pytest.mark.parametrize(
    ("samples", "truth"),
    [
        (said((6, 7), (21, 22)), True),
        (said((6, 16), (21, 22)), False),
        (said((6, 22)), False),  # from one to the next
        (said((6, 7), (21, 30)), False),
        (said((6, 7), to=22.0), None),  # nobody looked after the second
    ],
)
def test_of_several_faults_none_may_be_told_for_too_long(
    samples: tuple[Sample, ...], *, truth: bool | None
) -> None:
    found = findings(seen(samples, *TWICE))
    assert told(found) is truth
    assert len(found.faults) == 2


def test_only_faults_of_the_kind_are_to_be_shown() -> None:
    metric = 'triton_model_serving{model="m"} == 0'
    wanted = {"fault": "kill_stub", "metric": metric, "within_seconds": 2}
    events = (*fault("kill_stub", 5.0, 6.5), *fault("freeze_server", 20.0, 21.5))
    samples = (*said((6, 7), metric="triton_model_serving", model="m"), *said((21, 22)))
    for given in (wanted, {**wanted, "fault": None}):
        found = findings(seen(samples, *events, wanted=given))
        assert [len(one.signals) for one in found.faults] == [1, 0]
        assert found.reasons == ()
        assert told(found) is True


@pytest.mark.parametrize(("until", "truth"), [(15.5, True), (18.0, False)])
def test_a_fault_that_outlasts_a_killed_server_is_still_there(
    until: float, *, truth: bool
) -> None:
    events = (
        *fault("kill_server", 5.0, 15.1),
        *fault("network_delay", 5.1, 15.0),
        Event(6.5, "server_ready"),
    )
    found = seen(said((6, until)), *events[:3], outages=((5.0, 6.5),))
    assert told(findings(found.model_copy(update={"events": events}))) is truth


@pytest.mark.parametrize(("probe", "truth"), [("synthetic", False), ("golden", True)])
def test_a_probe_that_asks_seldom_excuses_itself_alone(
    probe: str, *, truth: bool
) -> None:
    events = fault("freeze_server", 5.0, 6.5)
    late = said((6, 12), metric="triton_probe_success", probe=probe)
    samples = (every(10.0, "golden"), *said((6, 7)), *late)
    assert told(findings(seen(samples, *events))) is truth
