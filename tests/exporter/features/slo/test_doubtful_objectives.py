"""An objective is doubtful while its models' failures are booked as successes."""

from __future__ import annotations

import pytest

from exporter import catalogue
from exporter.features.slo.objectives import (
    AvailabilityObjective,
    LatencyObjective,
    SignalObjective,
)
from exporter.features.slo.slo_collector import doubt
from exporter.samples import Sample

AVAILABILITY = AvailabilityObjective(name="a", objective_ratio=0.99, models="digits*")
OTHERS = [
    Sample(catalogue.OUTCOMES_DOUBTFUL, 1, ("other", "1")),
    Sample(catalogue.OUTCOMES_DOUBTFUL, 0, ("digits", "1")),
    Sample(catalogue.UNATTRIBUTED_REQUESTS, 5, ("digits", "1")),
]


def test_doubt_about_one_model_of_an_objective_is_doubt_about_the_objective():
    one = Sample(catalogue.OUTCOMES_DOUBTFUL, 1, ("digits_int8", "1"))
    assert [s.value for s in doubt(AVAILABILITY, [*OTHERS, one])] == [True]


def test_other_models_and_other_numbers_raise_no_doubt():
    assert [s.value for s in doubt(AVAILABILITY, OTHERS)] == [False]


@pytest.mark.parametrize(
    ("objective", "possible"),
    [
        (AVAILABILITY, True),
        (AVAILABILITY.model_copy(update={"source": "probes"}), False),
        (AVAILABILITY.model_copy(update={"source": "access_log"}), False),
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
    assert bool(doubt(objective, [])) == possible
