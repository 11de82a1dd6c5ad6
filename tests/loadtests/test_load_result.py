"""What a run's numbers mean, and that a file gives them back exactly."""

from __future__ import annotations

import io
import json
import math
from dataclasses import fields, replace

import numpy as np
import pytest
from fake_triton import FakeModel, FakeTriton
from load_runs import about

from exporter.cli import main
from loadtests import result_file
from loadtests.engine import recorder
from loadtests.engine.recorder import Recorder
from loadtests.engine.sender_verdict import verdict_of
from loadtests.errors import PlanError
from loadtests.report.run_figures import goodput_of, streams_of
from loadtests.result import Outcome, Requests, RunResult, Unanswered


def requests_of(outcomes: list[Outcome], *, delay=0.0001, latency=0.01) -> Requests:
    """One request every 10 ms; those sent are sent and answered in that time."""
    requests = Requests.empty(len(outcomes))
    requests.intended[:] = np.arange(len(outcomes)) / 100
    requests.outcome[:] = outcomes
    unsent = [o in (Outcome.REJECTED, Outcome.UNSENT) for o in outcomes]
    requests.sent[:] = np.where(unsent, np.nan, requests.intended + delay)
    requests.done[:] = requests.sent - delay + latency
    return requests


def result_of(outcomes: list[Outcome], mode="open", **times: float) -> RunResult:
    return RunResult.of(
        about(mode=mode, schedule_seconds=1.0),
        requests_of(outcomes, **times),
        duration_seconds=1.0,
        sender_cpu_seconds=0.1,
    )


def test_errors_and_wrong_answers_do_not_flatter_the_latency_and_timeouts_count() -> (
    None
):
    every = [Outcome.OK, Outcome.ERROR, Outcome.WRONG, Outcome.TIMEOUT]
    result = result_of([*every, Outcome.REJECTED, Outcome.UNSENT])
    assert result.from_intended.count == 2
    assert result.dispatch_delay.count == 4
    assert result.throughput == 1.0
    assert result.miss_ratio == pytest.approx(5 / 6)


def hung_last(mode: str, seconds: float) -> RunResult:
    """A run of 10 s; each answer took this time, but the last request timed out."""
    requests = Requests.empty(1000)
    if mode == "open":
        requests.intended[:] = np.arange(1000) / 100
    else:
        # Two requests in flight.
        requests.intended[:] = np.arange(1000) // 2 * seconds
    requests.sent[:] = requests.intended
    requests.done[:] = requests.sent + seconds
    requests.outcome[:] = Outcome.OK
    requests.responses[:] = 20
    requests.tokens[:] = 40
    requests = requests.where(requests.sent < 10.0)
    requests.outcome[-1] = Outcome.TIMEOUT
    requests.done[-1] = 20.0
    return RunResult.of(
        about(mode=mode, schedule_seconds=10.0, goodput="latency<60s"),
        requests,
        duration_seconds=20.0,
        sender_cpu_seconds=0.1,
    )


@pytest.mark.parametrize(
    ("mode", "seconds", "rate"),
    [
        ("open", 0.005, 99.9),
        ("open", 3.0, 99.9),
        ("closed", 0.02, 99.9),
        # Six streams, and a third of the seventh, which began a second before the end.
        ("closed", 3.0, 0.6 + 0.1 / 3),
    ],
)
def test_a_request_that_hangs_at_the_end_costs_its_own_answer_and_no_rate(
    mode, seconds, rate
) -> None:
    result = hung_last(mode, seconds)
    assert result.throughput == pytest.approx(rate, rel=1e-3)
    streams, goodput = streams_of(result), goodput_of(result)
    assert streams.output_tokens_per_second == pytest.approx(40 * result.throughput)
    assert streams.responses_per_second == pytest.approx(20 * result.throughput)
    assert goodput.requests_per_second == pytest.approx(result.throughput)


def test_a_quantile_over_all_counts_what_was_not_answered_as_infinitely_late() -> None:
    result = result_of([Outcome.OK] * 98 + [Outcome.REJECTED] * 2)
    assert result.quantile(0.5) == pytest.approx(0.01)
    assert result.quantile(0.98) == pytest.approx(0.01)
    assert result.quantile(0.99) == math.inf


def test_latency_counts_from_the_intended_time_and_the_delay_is_told_apart() -> None:
    result = result_of([Outcome.OK] * 100, delay=0.004, latency=0.01)
    assert result.from_intended.quantile(0.5) == pytest.approx(0.010, rel=0.012)
    assert result.from_send.quantile(0.5) == pytest.approx(0.006, rel=0.012)
    assert result.dispatch_delay.quantile(0.5) == pytest.approx(0.004, rel=0.012)


@pytest.mark.parametrize(
    ("result", "cpu", "slo", "told"),
    [
        (result_of([Outcome.OK] * 100, delay=0.003), 0.1, 0.02, "10 % of the SLO's"),
        (result_of([Outcome.OK] * 100, delay=0.009), 0.1, None, "50 % of the p99"),
        (result_of([Outcome.OK] * 98 + [Outcome.UNSENT] * 2), 0.1, None, "2 of 100"),
        (result_of([Outcome.OK] * 100, mode="closed"), 0.95, None, "95 % of a core"),
        (result_of([]), 0.0, None, "nothing was sent"),
    ],
)
def test_a_sender_that_was_the_bottleneck_makes_the_run_invalid(
    result, cpu, slo, told
) -> None:
    verdict = verdict_of(result, cpu, slo).verdict
    assert not verdict.valid
    assert told in str(verdict)


@pytest.mark.parametrize(
    ("result", "cpu", "slo"),
    [
        (result_of([Outcome.OK] * 100, delay=0.0019), 0.1, 0.02),
        (result_of([Outcome.OK] * 99 + [Outcome.UNSENT]), 0.1, None),
        # Shed by the in-flight limit: the server's doing, a miss, and valid.
        (result_of([Outcome.OK] * 50 + [Outcome.REJECTED] * 50), 0.1, None),
        (result_of([Outcome.OK] * 100, mode="closed"), 0.85, None),
    ],
)
def test_a_sender_that_kept_up_leaves_it_valid(result, cpu, slo) -> None:
    assert verdict_of(result, cpu, slo).verdict.valid


def test_requests_that_waited_for_a_stream_are_told_and_do_not_decide() -> None:
    result = result_of([Outcome.OK] * 200)
    verdict = verdict_of(result, 0.1, None, queued=150).verdict
    assert verdict.valid
    assert "150 of 200 requests waited here" in verdict.warnings[0]
    assert not verdict_of(result, 0.1, None).verdict.warnings


def test_without_an_slo_a_notable_delay_is_told_but_does_not_decide() -> None:
    result = verdict_of(result_of([Outcome.OK] * 100, delay=0.002), 0.1, None)
    assert result.verdict.valid
    assert "20 % of the p99 latency" in result.verdict.warnings[0]


def test_a_closed_loop_that_waited_for_its_server_is_invalid_and_says_so() -> None:
    whole = result_of(
        [Outcome.OK] * 90 + [Outcome.ERROR] * 10, "closed"
    )  # 1 s together
    for waited, valid in ((0.005, True), (0.1, False)):
        found = Unanswered(10, 0.9, 1.0, waited)
        verdict = verdict_of(replace(whole, unanswered=found), 0.1, None).verdict
        assert verdict.valid is valid
        (told,) = verdict.warnings + verdict.reasons
        assert told.startswith("the server was ")
        assert "unavailable: 10 requests got no answer, from 0.9 to 1.0 s" in told
    assert "waited for 9.17 % of the time" in told


def test_a_file_gives_back_every_number_exactly(tmp_path) -> None:
    rng = np.random.default_rng(2)
    requests = requests_of([Outcome(c) for c in rng.integers(0, 6, 2000)])
    requests.done[:] += rng.exponential(0.01, 2000)
    requests.first[1:] = requests.sent[1:]
    requests.responses[:3] = [0, 2, (1 << 32) - 1]
    requests.tokens[:3] = [0, 7, 1]
    requests.longest_gap[:3] = [np.nan, 0.25, 0.5]
    before = RunResult.of(
        about(profile={"kind": "poisson"}),
        requests,
        duration_seconds=20.0,
        sender_cpu_seconds=0.25,
        errors={"INTERNAL: no": 3},
        unanswered=Unanswered(2, 0.5, 1.5, 0.25),
    ).warned("a note")
    file = tmp_path / "run.json"
    result_file.write(before, file)
    after = result_file.read(file)
    for kept in fields(Requests):
        found = getattr(after.requests, kept.name)
        np.testing.assert_array_equal(found, getattr(before.requests, kept.name))
        assert found.dtype == getattr(before.requests, kept.name).dtype
    assert after.from_intended == before.from_intended
    assert (after.about, after.verdict, after.errors, after.unanswered) == (
        before.about,
        before.verdict,
        before.errors,
        before.unanswered,
    )


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda _: [], "is not a load run"),
        (lambda d: d | {"format": "x"}, "is not a load run"),
        (lambda d: d | {"version": 9}, "found version 9"),
        (lambda d: d | {"requests": {"count": 10**12}}, "found 10"),
        (lambda d: d | {"requests": d["requests"] | {"sent": "!"}}, "is incomplete"),
        (
            lambda d: d | {"requests": d["requests"] | {"count": 5}},
            "not have 5 entries",
        ),
        (lambda d: d | {"histograms": {}}, "is incomplete: KeyError: 'from_intended'"),
        (lambda d: d | {"about": {"mode": "open"}}, "about.protocol: Field required"),
        (lambda d: d | {"errors": "none"}, "errors: Input should be a valid dict"),
        *(
            (
                lambda d, seconds=seconds: d | {"duration_seconds": seconds},
                "is incomplete: duration_seconds",
            )
            for seconds in (10**400, math.inf)
        ),
        *(
            (
                lambda d, at=at: d | {"about": d["about"] | {"started_at": at}},
                "is incomplete: about.started_at",
            )
            for at in (1e18, -1.0)  # no date
        ),
    ],
)
def test_a_file_that_is_no_whole_result_is_refused(tmp_path, change, told) -> None:
    file = tmp_path / "run.json"
    document = result_file.to_document(result_of([Outcome.OK] * 10))
    file.write_text(json.dumps(change(document)), "utf-8")
    with pytest.raises(PlanError) as refused:
        result_file.read(file)
    assert told in str(refused.value)
    assert str(file) in str(refused.value)


def test_it_grows_up_to_the_most_requests_of_a_run_and_keeps_what_it_has(
    monkeypatch,
) -> None:
    monkeypatch.setattr(recorder, "_FIRST_CAPACITY", 4)
    monkeypatch.setattr(recorder, "MAX_REQUESTS", 10)
    one = Recorder.growing(100.0)
    one.begin(3)
    one.finish(3, Outcome.OK, 102.5)
    for count, held in ((4, 4), (5, 8), (9, 10), (10, 10)):
        assert one.make_room(count)
        assert len(one.requests) == held
    assert not one.make_room(11)
    assert one.requests.done[3] == 2.5
    one.begin(9)
    one.finish(9, Outcome.OK, 103.0)
    assert one.requests.done[9] == 3.0
    assert np.flatnonzero(one.requests.outcome == Outcome.OK).tolist() == [3, 9]


def test_each_request_is_written_down_as_it_went(monkeypatch) -> None:
    monkeypatch.setattr(recorder, "MAX_MESSAGES", 2)
    one, ended, lost = Recorder.growing(100.0), [], []
    one.ended, one.lost = ended.append, lost.append
    one.begin(0)
    one.reject(1)
    assert (one.started, one.in_flight, one.finished) == (2, 1, [1])
    for at, since in ((100.5, None), (100.7, 100.5), (101.2, 100.7), (101.1, 101.2)):
        one.respond(0, at, since)
    one.count_tokens(0, 1 << 40)
    one.finish(0, Outcome.OK, 102.0)
    for index, message in enumerate("aabcdx" * 2, 2):
        one.begin(index)
        one.finish(index, Outcome.ERROR, 103.0, message * 500)
    one.begin(14)
    one.lose(14, 104.0, "gone")
    assert (one.started, one.in_flight) == (15, 0)
    assert one.finished == [1, 0, *range(2, 15)]
    assert (ended, lost) == ([0, *range(2, 14)], [14])
    written = one.requests
    assert written.outcome[:3].tolist() == [Outcome.OK, Outcome.REJECTED, Outcome.ERROR]
    assert (written.first[0], written.done[0]) == (0.5, 2.0)
    assert (written.responses[0], written.tokens[0]) == (4, (1 << 32) - 1)
    assert written.longest_gap[0] == np.float32(0.5)
    # A clock that steps back makes a gap of nothing.
    assert (one.between.count, one.between.min) == (3, 0.0)
    assert one.errors == {"a" * 200: 4, "b" * 200: 2, "other errors": 7}
    assert one.unanswered.count == 1


def test_a_message_of_a_server_can_be_written_whatever_it_holds() -> None:
    one = Recorder.growing(100.0)
    for index, message in enumerate(("no \ud83d", "no \udcc3")):
        one.begin(index)
        one.finish(index, Outcome.ERROR, 101.0, message)
    assert one.errors == {"no ?": 2}


def test_a_run_whose_report_cannot_be_printed_is_kept(monkeypatch, tmp_path) -> None:
    file = tmp_path / "run.json"
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), "ascii"))
    with FakeTriton([FakeModel("m")]) as fake:
        command = f"load run --quiet --model m --concurrency 1 --address {fake.grpc}"
        with pytest.raises(UnicodeEncodeError):
            main([*command.split(), "--duration", "0.3", "--json", str(file)])
    assert len(result_file.read(file).requests) > 0
