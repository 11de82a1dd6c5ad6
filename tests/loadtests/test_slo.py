"""Objectives as people write them, and which requests miss them."""

from __future__ import annotations

import numpy as np
import pytest

from loadtests.capacity.load_objective import parse
from loadtests.errors import PlanError
from loadtests.result import Outcome, Requests


def made(*ended: tuple[Outcome, float]) -> Requests:
    requests = Requests.empty(len(ended))
    requests.intended[:] = np.arange(len(ended))
    requests.sent[:] = requests.intended
    for index, (outcome, seconds) in enumerate(ended):
        requests.outcome[index] = outcome
        requests.done[index] = requests.intended[index] + seconds
    return requests


def test_terms_have_shares_and_limits() -> None:
    slo = parse("p99<20ms, p99.9 <= 0.5s,errors<0.1%")
    assert slo.text == "p99<20ms,p99.9<0.5s,errors<0.1%"
    assert slo.allowed == pytest.approx([0.01, 0.001, 0.001])
    assert [term.limit_seconds for term in slo.terms] == [0.02, 0.5, None]
    assert slo.limit_seconds == 0.02
    assert parse("errors<0.002").allowed == pytest.approx([0.002])
    assert parse("P95<500us").limit_seconds == pytest.approx(5e-4)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "want terms like p99<20ms"),
        ("fast", "want terms like p99<20ms"),
        ("p99<20", "no unit; want one of us, µs, ms, s, min"),
        ("p99<20parsecs", "unit 'parsecs'"),
        ("p100<20ms", "percentile above 0 and below 100"),
        ("p0<20ms", "percentile above 0 and below 100"),
        ("p99<0ms", "limit above 0"),
        ("p99>20ms", "want terms like"),
        ("errors<100%", "above 0 % and below 100 %"),
        ("errors<0", "above 0 % and below 100 %"),
        ("p99<20ms,", "found ''"),
        ("p99<20ms,p99<20ms", "'p99<20ms' twice"),
    ],
)
def test_what_is_no_objective_says_what_would_be(text, said) -> None:
    with pytest.raises(PlanError) as caught:
        parse(text)
    assert said in str(caught.value)
    assert "--slo" in str(caught.value)


def test_shed_lost_late_and_wrong_requests_all_miss() -> None:
    requests = made(
        (Outcome.OK, 0.010),
        (Outcome.OK, 0.020),
        (Outcome.OK, 0.021),
        (Outcome.ERROR, 0.001),
        (Outcome.WRONG, 0.001),
        (Outcome.TIMEOUT, 1.0),
        (Outcome.REJECTED, np.nan),
        (Outcome.UNSENT, np.nan),
    )
    misses = parse("p99<20.5ms,errors<0.1%").misses(requests)
    assert misses[:, 0].tolist() == [False, False, True, *[True] * 5]
    assert misses[:, 1].tolist() == [False, False, False, *[True] * 5]
