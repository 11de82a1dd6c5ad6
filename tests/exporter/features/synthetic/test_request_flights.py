"""How long the request of a target is under way."""

from __future__ import annotations

from clocks import Clock

from exporter.access.probe_base import Target
from exporter.features.synthetic.synthetic_verdicts import RequestFlights

TARGET = Target(("m", "1"), "grpc")


def test_a_request_under_way_is_timed_although_its_model_is_gone():
    clock = Clock(100.0)
    flights = RequestFlights(clock)
    with flights.under_way(TARGET):
        clock.now += 10
        flights.keep({})
        assert flights.waited_seconds(TARGET) == 10
    assert flights.waited_seconds(TARGET) == 10


def test_an_ended_request_is_forgotten_with_its_model():
    clock = Clock(100.0)
    flights = RequestFlights(clock)
    with flights.under_way(TARGET):
        clock.now += 10
    flights.keep({TARGET.key})
    assert flights.waited_seconds(TARGET) == 10
    flights.keep({})
    assert flights.waited_seconds(TARGET) == 0
