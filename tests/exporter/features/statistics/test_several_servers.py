"""Which reads on a new connection can only be another server's."""

from __future__ import annotations

import pytest

from exporter.errors import UnavailableError
from exporter.features.statistics.several_servers import SeveralServers, is_another
from exporter.triton.protocol_types import Duration, ModelStatistics

KEY = ("m", "1")


def counted(requests, ns=0, key=KEY):
    success = Duration(requests, ns)
    return {key: ModelStatistics(*key, success=success, inference_count=requests)}


@pytest.mark.parametrize(
    ("before", "between", "after", "expected"),
    [
        (counted(5), counted(5), counted(5), False),
        (counted(5), counted(7), counted(9), False),
        (counted(5), counted(4), counted(9), True),
        (counted(5), counted(10), counted(9), True),
        (counted(5, 100), counted(5, 99), counted(5, 100), True),  # a time tells, too
        (counted(5), counted(0), counted(1), False),  # started over meanwhile
        (counted(5), {}, counted(5), True),
        ({}, counted(5), {}, True),
        ({}, counted(5), counted(5), False),  # loaded meanwhile
        (counted(5), {}, {}, False),  # unloaded meanwhile
        (counted(5), counted(5, key=("n", "1")), counted(5), True),
        ({}, {}, {}, False),
    ],
)
def test_what_one_server_cannot_have_said(before, between, after, expected) -> None:
    assert is_another(before, between, after) is expected


def said(several, *, is_one_process=False):
    return [s.value for s in several.samples(is_one_process=is_one_process)]


def test_it_is_said_after_two_findings_and_forgotten_after_ten_minutes() -> None:
    now = 0.0
    several = SeveralServers(lambda: now)
    assert said(several) == []
    assert said(several, is_one_process=True) == [0]
    several.compare(counted(5), counted(1), counted(5))
    assert said(several) == [0]
    now = 15.0
    several.compare(counted(5), counted(1), counted(5))
    assert said(several) == [1]
    now = 599.0
    assert said(several) == [1]
    now = 600.0
    assert said(several) == [0]


def test_a_new_connection_is_made_every_fifteen_seconds_and_may_fail() -> None:
    now = 0.0
    several = SeveralServers(lambda: now)

    def fail():
        raise UnavailableError("gone")

    assert several.is_due()
    assert several.read(fail) is None
    assert said(several) == []
    assert not several.is_due()
    now = 14.9
    assert not several.is_due()
    now = 15.0
    assert several.is_due()
    assert several.read(lambda: counted(1)) == counted(1)
