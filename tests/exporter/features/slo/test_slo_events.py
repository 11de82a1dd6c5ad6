"""Good and bad events from exposed samples, through resets, stale and new series."""

from __future__ import annotations

import asyncio

import pytest
from clocks import Clock

from exporter import catalogue
from exporter.access.collector_base import CollectorSettings
from exporter.access.probe_base import Target, Verdict
from exporter.catalogue.probe_outcomes import OUTCOMES
from exporter.errors import PartialResultError, UnavailableError
from exporter.features.slo.objectives import (
    AvailabilityObjective,
    GoodputObjective,
    LatencyObjective,
    PresetObjective,
    SignalObjective,
)
from exporter.features.slo.slo_collector import EventCounter
from exporter.histograms.histogram import Histogram
from exporter.runtime.health import CollectorRunner
from exporter.runtime.probe_meter import ProbeMeter
from exporter.samples import HistogramSample, ReadTime, Sample
from exporter.system.workers import Workers

LATENCY = LatencyObjective(name="x", objective_ratio=0.9, threshold_seconds=0.1)
AVAILABILITY = AvailabilityObjective(name="x", objective_ratio=0.9)


def latencies(*seconds: float, model: str = "m") -> HistogramSample:
    histogram = Histogram()
    histogram.record_many(seconds)
    return HistogramSample(catalogue.REQUEST_DURATION, histogram, (model, "1"))


def outcomes(success: float, failure: float, model: str = "m") -> list[Sample]:
    return [
        Sample(catalogue.REQUESTS, success, (model, "1", "success")),
        Sample(catalogue.REQUESTS, failure, (model, "1", "failure")),
    ]


def test_an_objective_on_access_logs_counts_what_clients_saw() -> None:
    def seen(success: float, failure: float, source: str) -> list[Sample]:
        counts = {"success": success, "failure": failure, "abandoned": 50}
        return [
            Sample(catalogue.CLIENT_REQUESTS, number, ("m", "1", outcome, source))
            for outcome, number in counts.items()
        ]

    counter = EventCounter(AVAILABILITY.model_copy(update={"source": "access_log"}))
    counter.add(seen(0, 0, "access_log"), 0)
    mirrored = seen(100, 100, "mirror")
    counter.add([*seen(7, 3, "access_log"), *mirrored, *outcomes(10, 0)], 5)
    assert (counter.good, counter.bad) == (7, 3)


def read(collector: str, *, success: bool) -> Sample:
    return Sample(catalogue.COLLECTOR_SUCCESS, success, (collector,))


@pytest.mark.parametrize("outages", [1, 5])
def test_an_objective_that_begins_during_an_outage_replays_nothing(outages) -> None:
    counter = EventCounter(AVAILABILITY)
    for now in range(outages):
        counter.add([read("statistics", success=False)], now)
    counter.add([read("statistics", success=True), *outcomes(400, 40)], 10)
    assert (counter.good, counter.bad) == (0, 0)
    counter.add([read("statistics", success=True), *outcomes(402, 41)], 15)
    assert (counter.good, counter.bad) == (2, 1)
    # From here on it is known what there is: another model began after that.
    new = outcomes(3, 1, model="new")
    counter.add([read("statistics", success=True), *outcomes(402, 41), *new], 20)
    assert (counter.good, counter.bad) == (5, 2)


def test_a_latency_objective_that_begins_during_an_outage_replays_nothing() -> None:
    counter = EventCounter(LATENCY)
    counter.add([read("traces", success=False), read("statistics", success=True)], 0)
    counter.add([read("traces", success=True), latencies(0.01, 3.0)], 5)
    assert (counter.good, counter.bad) == (0, 0)


def test_a_failure_of_another_collector_hides_no_event() -> None:
    counter = EventCounter(AVAILABILITY)
    counter.add([read("energy", success=False), read("statistics", success=True)], 0)
    counter.add([read("statistics", success=True), *outcomes(3, 1)], 5)
    assert (counter.good, counter.bad) == (3, 1)


@pytest.mark.parametrize(
    ("after", "found"), [((4, 1), (104, 11)), ((4, 990), (100, 990))]
)
def test_a_source_that_starts_over_is_no_negative_event(after, found) -> None:
    counter = EventCounter(AVAILABILITY)
    counter.add([], 0)
    counter.add(outcomes(100, 10), 5)
    counter.add(outcomes(*after), 10)
    assert (counter.good, counter.bad) == found


def test_a_series_that_was_away_for_a_while_is_not_counted_twice() -> None:
    counter = EventCounter(AVAILABILITY)
    counter.add([], 0)
    counter.add(outcomes(100, 10), 5)
    counter.add([], 10)
    counter.add(outcomes(101, 10), 15)
    assert (counter.good, counter.bad) == (101, 10)


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_what_shows_nothing_of_a_model_is_no_event_of_its_probes(outcome) -> None:
    counter = EventCounter(AVAILABILITY.model_copy(update={"source": "probes"}))
    counter.add([], 0)
    labels = ("m", "1", "grpc", "synthetic", outcome)
    counter.add([Sample(catalogue.PROBE_TOTAL, 5, labels)], 5)
    good, bad = {
        "ok": (5, 0),
        "stalled": (5, 0),
        "cached": (0, 0),
        "backlog": (0, 0),
        "late": (0, 0),
        "unjudged": (0, 0),
        "configuration": (0, 0),
    }.get(outcome, (0, 5))
    assert (counter.good, counter.bad) == (good, bad)


GOODPUT = GoodputObjective(name="x", objective_ratio=0.9, limits="chat", models="m")
SERVING = SignalObjective(
    name="x",
    objective_ratio=0.9,
    metric="triton_model_serving",
    models="m",
    labels={"model": "m", "version": "1"},
    at_least=1,
)


def on_signal(metric, **bounds):
    return SignalObjective(name="x", objective_ratio=0.9, metric=metric, **bounds)


def of_probes(objective):
    return objective.model_copy(update={"source": "probes"})


def page(number: int) -> list:
    """All that objectives look at, and what is like it: `number` looks long."""

    def counted(spec, *labels, times=1):
        return Sample(spec, times * number, labels)

    def timed(spec, seconds, *labels):
        histogram = latencies(*seconds * number).histogram
        return HistogramSample(spec, histogram, labels)

    probed = ("m", "1", "grpc", "synthetic")
    return [
        counted(catalogue.EXECUTIONS, "m", "1", times=50),
        Sample(catalogue.MODEL_READY, 0, ("m", "1")),
        *(
            counted(catalogue.REQUESTS, model, "1", outcome, times=times)
            for model in ("l", "m", "n")
            for outcome, times in (("success", 3), ("failure", 2))
        ),
        *(
            counted(catalogue.PROBE_TOTAL, *probed, outcome, times=times)
            for outcome, times in (
                ("cached", 60),
                ("ok", 5),
                ("late", 70),
                ("timeout", 3),
            )
        ),
        *(
            counted(catalogue.REQUEST_GOODPUT, model, "1", limits, outcome, times=times)
            for model in ("l", "m")
            for limits, times in (("batch", 50), ("chat", 6))
            for outcome in ("met", "missed")
        ),
        *(
            timed(spec, [0.01, 0.02, 9.0], model, "1")
            for spec in (catalogue.BATCH_SIZE, catalogue.REQUEST_DURATION)
            for model in ("l", "m", "n")
        ),
        timed(catalogue.PROBE_DURATION, [9.0, 0.01, 9.0, 9.0], *probed),
        timed(catalogue.FIRST_RESPONSE, [0.09, 0.01, 0.2], "m", "1"),
        timed(catalogue.RESPONSE_GAP, [0.01, 0.2, 0.3, 0.4], "m", "1"),
        timed(catalogue.PROBE_FIRST_RESPONSE, [0.05, 0.2, 0.3], *probed),
        timed(catalogue.PROBE_RESPONSE_GAP, [0.05] * 5 + [0.2], *probed),
        Sample(catalogue.MODEL_SERVING, 0, ("l", "1")),
        Sample(catalogue.MODEL_SERVING, 1, ("m", "1")),
        Sample(catalogue.MODEL_SERVING, 0, ("m", "2")),
    ]


@pytest.mark.parametrize(
    ("objective", "good", "bad"),
    [
        (LATENCY.model_copy(update={"models": "m"}), 4, 2),
        (of_probes(LATENCY), 2, 6),
        (LATENCY.model_copy(update={"kind": "first_response"}), 4, 2),
        (LATENCY.model_copy(update={"kind": "response_gap"}), 2, 6),
        (of_probes(LATENCY.model_copy(update={"kind": "first_response"})), 2, 10),
        (of_probes(LATENCY.model_copy(update={"kind": "response_gap"})), 10, 2),
        (AVAILABILITY.model_copy(update={"models": "m"}), 6, 4),
        (AVAILABILITY, 18, 12),
        (of_probes(AVAILABILITY), 10, 6),
        (GOODPUT, 12, 12),
        (SERVING, 3, 0),
    ],
)
def test_an_objective_counts_its_own_events_wherever_they_stand(
    objective, good, bad
) -> None:
    for turned in range(len(page(1))):
        counter = EventCounter(objective)
        for now in range(3):
            exposed = page(now + 1)
            counter.add([*exposed[turned:], *exposed[:turned]], now)
        assert (counter.good, counter.bad) == (good, bad)


@pytest.mark.parametrize("kind", ["latency", "first_response"])
@pytest.mark.parametrize("threshold", [0.5, 0.99, 1.0, 2.0])
def test_a_timeout_of_a_probe_is_bad_whatever_the_threshold(threshold, kind) -> None:
    changes = {"threshold_seconds": threshold, "kind": kind}
    counter = EventCounter(of_probes(LATENCY.model_copy(update=changes)))
    meter = ProbeMeter("synthetic", 300, lambda: 0.0)
    target = Target(("m", "1"), "grpc")
    for now, outcome, seconds in [
        *((0.0, "ok", 0.01) for _ in range(3)),
        *((1.0, "timeout", 1.0) for _ in range(5)),
        *((2.0, "ok", 0.01) for _ in range(7)),
    ]:
        # A stream that hangs has no first response.
        first = seconds if outcome == "ok" else None
        verdict = Verdict(outcome, seconds, first_response_seconds=first)
        meter.record(target, verdict, now)
        counter.add(meter.samples(now, 60), now)
    assert (counter.good, counter.bad) == (9, 5)


def test_a_signal_is_judged_where_model_and_labels_fit() -> None:
    objective = on_signal(
        "triton_model_serving", models="a*", labels={"version": "1"}, at_least=1
    )
    counter = EventCounter(objective)
    for labels in (("a", "1"), ("ab", "1"), ("a", "2"), ("b", "1")):
        counter.add([Sample(catalogue.MODEL_SERVING, 0, labels)], 0)
    assert (counter.good, counter.bad) == (0, 2)


def test_each_reading_of_a_signal_is_good_within_its_bounds_and_on_them() -> None:
    counter = EventCounter(on_signal("triton_model_serving", at_least=1, at_most=2))
    found = []
    for now, value in enumerate((0.9, 1, 2, 2.1)):
        counter.add([Sample(catalogue.MODEL_SERVING, value, ("m", "1"))], now)
        found.append((counter.good, counter.bad))
    assert found == [(0, 1), (1, 1), (2, 1), (2, 2)]


def test_a_counter_is_judged_by_its_rate_and_not_across_a_reset() -> None:
    counter = EventCounter(on_signal("triton_inferences_total", at_least=10))
    looks = ((0, 0), (1, 20), (2, 25), (3, 2), (4, 30), (8, 70), (8, 99), (12, 150))
    for now, value in looks:
        late = [Sample(catalogue.INFERENCES, 40 * now, ("n", "1"))] * (now > 3)
        counter.add([*late, Sample(catalogue.INFERENCES, value, ("m", "1"))], now)
    # Of the one that came later, the first total is no rate either.
    assert (counter.good, counter.bad) == (4 + 2, 1)


@pytest.mark.parametrize("interval", [5, 7, 10, 15])
@pytest.mark.parametrize("failed", [frozenset(), frozenset({4, 9, 10})])
def test_a_steady_rate_is_good_however_often_its_source_is_read(interval, failed):
    (objective,) = PresetObjective(
        name="t", preset="throughput", per_second=80.0
    ).expand()
    counter = EventCounter(objective)
    reads = [n * interval + 0.01 * (n % 3) for n in range(100) if n not in failed]
    for now in range(5, 100 * interval, 5):
        at = max(at for at in (0.0, *reads) if at <= now)
        # From half of the time on another version, which is new, has the traffic.
        moved = max(0.0, at - 50 * interval)
        totals = [
            Sample(catalogue.INFERENCES, 100 * (at - moved), ("m", "1")),
            *[Sample(catalogue.INFERENCES, 100 * moved, ("m", "2"))] * (moved > 0),
        ]
        when = ReadTime(catalogue.COLLECTOR_TIMESTAMP, 1e9, ("statistics",), at=at)
        counter.add([*totals, when], now)
    assert counter.bad == 0
    assert 60 <= counter.good <= 99 - len(failed)


def test_a_gauge_is_judged_each_time_its_source_is_read() -> None:
    counter = EventCounter(on_signal("triton_golden_score_ratio", at_least=0.9))
    for now, (read_at, value) in enumerate([(7, 1), (7, 1), (7, 1), (9, 0), (9, 0)]):
        labels = ("m", "1", "set", "accuracy")
        when = ReadTime(
            catalogue.COLLECTOR_READ_TIMESTAMP, 1e9, ("golden",), at=read_at
        )
        other = Sample(catalogue.GOLDEN_SCORE, now % 2, ("n", *labels[1:]))
        counter.add([Sample(catalogue.GOLDEN_SCORE, value, labels), when, other], now)
    # What no collector reads is current at each observation.
    assert (counter.good, counter.bad) == (1 + 2, 1 + 3)


def test_a_stalled_counter_is_judged_as_a_rate_of_zero() -> None:
    counter = EventCounter(on_signal("triton_inferences_total", at_least=1))
    for now in range(4):
        counter.add([Sample(catalogue.INFERENCES, 500, ("m", "1"))], now)
    assert (counter.good, counter.bad) == (0, 3)


class NotReady:
    """A server that is not ready, and whose models cannot be listed."""

    def collect(self):
        raise PartialResultError(
            [Sample(catalogue.READY, 0)], UnavailableError("no index")
        )


@pytest.mark.parametrize("is_first", [False, True])
def test_a_gauge_of_a_partial_result_is_judged_at_each_read(is_first) -> None:
    counter, clock = EventCounter(on_signal("triton_ready", at_least=1)), Clock(5.0)
    runner = CollectorRunner("server", CollectorSettings(), NotReady(), clock, clock)
    if not is_first:
        runner.meter.succeeded(0.1)

    async def collected() -> None:
        workers = Workers(1, "test")
        try:
            for _ in range(3):
                clock.now += 1
                await runner._collect_once(workers)
                for _ in range(2):
                    counter.add(runner.samples(clock.now), clock.now)
        finally:
            workers.close()

    asyncio.run(collected())
    assert (counter.good, counter.bad) == (0, 3)
