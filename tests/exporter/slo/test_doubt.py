"""An objective is doubtful while its models' failures are booked as successes."""

from __future__ import annotations

import pytest

from exporter import catalogue
from exporter.samples import Sample
from exporter.slo.doubt import DOUBTFUL_SECONDS, Doubt
from exporter.slo.objectives import (
    AvailabilityObjective,
    LatencyObjective,
    SignalObjective,
)

AVAILABILITY = AvailabilityObjective(name="a", objective_ratio=0.99, models="digits*")


def booked(count, model="digits"):
    return Sample(catalogue.FAILURES_BOOKED_AS_SUCCESS, count, (model, "1"))


def test_it_is_doubtful_from_the_first_such_failure_until_ten_minutes_after_the_last():
    doubt = Doubt(AVAILABILITY)
    assert not doubt.look([booked(0)], 0)
    assert doubt.look([booked(1)], 10)
    assert doubt.look([booked(1)], 300)
    assert doubt.look([booked(2)], 500)
    assert doubt.look([booked(2)], 500 + DOUBTFUL_SECONDS - 1)
    assert not doubt.look([booked(2)], 500 + DOUBTFUL_SECONDS)


@pytest.mark.parametrize(
    "sample",
    [
        booked(5, "other"),
        Sample(catalogue.REQUESTS, 5, ("digits", "1", "failure")),
        Sample(catalogue.UNATTRIBUTED_REQUESTS, 5, ("digits", "1")),
    ],
)
def test_other_models_and_other_numbers_raise_no_doubt(sample):
    assert not Doubt(AVAILABILITY).look([sample], 0)


def test_a_counter_that_starts_over_is_no_failure():
    doubt = Doubt(AVAILABILITY)
    doubt.look([booked(5)], 0)
    assert not doubt.look([booked(0)], 2 * DOUBTFUL_SECONDS)
    assert doubt.look([booked(1)], 3 * DOUBTFUL_SECONDS)


@pytest.mark.parametrize(
    ("objective", "possible"),
    [
        (AVAILABILITY, True),
        (AVAILABILITY.model_copy(update={"source": "probes"}), False),
        (LatencyObjective(name="l", objective_ratio=0.9, threshold_seconds=1), True),
        (
            SignalObjective(
                name="s",
                objective_ratio=0.9,
                metric="triton_model_serving",
                at_least=1,
            ),
            False,
        ),
    ],
)
def test_only_objectives_on_productions_requests_can_be_doubtful(objective, possible):
    assert Doubt(objective).is_possible == possible
