"""Messages between Locust's master and its workers, without Locust."""

from __future__ import annotations

import json

import numpy as np
import pytest

from exporter.triton.protocol_types import ModelSpec
from loadtests import load_objective, plan
from loadtests.distributed import sender
from loadtests.distributed.coordinator import Coordinator, Tally, distributed_text
from loadtests.distributed.worker import local_start
from loadtests.plan import Body, Entry, Mix
from loadtests.result import Outcome, Requests
from loadtests.scenario import Scenario


def recorded(count: int, seed: int = 1) -> Requests:
    """A stream from microseconds to an hour, of every outcome."""
    rng = np.random.default_rng(seed)
    requests = Requests.empty(count)
    requests.intended[:] = np.cumsum(rng.exponential(1e-3, count))
    requests.sent[:] = requests.intended + rng.exponential(1e-4, count)
    requests.done[:] = requests.sent + 10 ** rng.uniform(-6, 3.5, count)
    requests.outcome[:] = rng.choice([1, 1, 1, 1, 2, 3, 4], count)
    return requests


def tallied(*parts: Requests, slo: str = "p99<1s") -> Tally:
    tally = Tally()
    for part in parts:
        tally.add(part, load_objective.parse(slo).terms)
    return tally


def test_every_time_of_a_request_is_tallied_from_where_it_begins() -> None:
    requests = Requests.empty(4)
    requests.intended[:] = [10.0, 20.0, 30.0, 40.0]
    requests.sent[:] = [11.0, 22.0, 34.0, np.nan]
    requests.first[:] = [13.0, np.nan, np.nan, np.nan]
    requests.done[:] = [17.0, 29.0, 35.0, np.nan]
    requests.responses[:] = [5, 0, 1, 0]
    requests.outcome[:] = [
        Outcome.OK,
        Outcome.TIMEOUT,
        Outcome.ERROR,
        Outcome.REJECTED,
    ]
    slo = "p50<6s,errors<80%,itl_p50<2s"
    found = tallied(requests, slo=slo)
    assert found.outcomes == {"ok": 1, "timeout": 1, "error": 1, "rejected": 1}
    assert found.count == 4
    seconds = {n: (h.count, h.to_state()["sum"]) for n, h in found.histograms.items()}
    assert seconds == {
        "from_intended": (2, 7.0 + 9.0),
        "from_send": (2, 6.0 + 7.0),
        "dispatch_delay": (3, 1.0 + 2.0 + 4.0),
        "first_response": (1, 3.0),
        "mean_gap": (1, 1.0),
    }
    late, failed, gap = map(found.judged, load_objective.parse(slo).terms)
    assert (late.passed, late.missed_ratio) == (False, 1.0)
    assert (failed.passed, failed.missed_ratio) == (None, 0.75)
    assert (gap.passed, gap.missed_ratio) == (False, 0.75)


@pytest.mark.parametrize("workers", [2, 5])
def test_workers_merged_are_one_process_bit_for_bit(workers) -> None:
    stream = recorded(20_000)
    merged = Tally()
    for worker in range(workers):
        mine = stream.where(plan.share(stream.intended, worker, workers, seed=3))
        # In reports of a few, through what the wire can hold.
        for start in range(0, len(mine), 700):
            state = tallied(mine.where(slice(start, start + 700))).to_state()
            merged.merge(Tally.from_state(json.loads(json.dumps(state))))
    whole = tallied(stream)
    assert merged.outcomes == whole.outcomes
    for name, histogram in whole.histograms.items():
        found = merged.histograms[name]
        assert found == histogram
        ours, theirs = found.to_state(), histogram.to_state()
        assert {**ours, "sum": 0} == {**theirs, "sum": 0}


def test_frames_come_back_as_they_went(tmp_path) -> None:
    stream = recorded(100)
    file = tmp_path / "pipe"
    with file.open("wb") as out:
        sender.write(out, sender.Frame("ready", {"entries": ["m"]}))
        sender.write(out, sender.Frame("batch", {"in_flight": 3}, stream))
    with file.open("rb") as source:
        assert sender.read(source) == sender.Frame("ready", {"entries": ["m"]})
        batch = sender.read(source)
        assert sender.read(source) is None
    assert batch is not None
    assert batch.requests is not None
    assert np.array_equal(batch.requests.done, stream.done)
    assert np.array_equal(batch.requests.outcome, stream.outcome)


@pytest.mark.parametrize("cut", [5, 60, 500])
def test_half_a_frame_is_told(tmp_path, cut) -> None:
    file = tmp_path / "pipe"
    with file.open("wb") as out:
        sender.write(out, sender.Frame("batch", {}, recorded(100)))
    file.write_bytes(file.read_bytes()[:cut])
    with (
        file.open("rb") as source,
        pytest.raises(ValueError, match=r"Unterminated|Expecting"),
    ):
        sender.read(source)


# The coordinator alone, spoken to as workers do.


def coordinator_of(
    *workers: str, slo: str | None = None
) -> tuple[Coordinator, list[tuple[str, str]]]:
    sent: list[tuple[str, str]] = []
    scenario = Scenario.model_validate(
        {
            "models": [{"model": "m"}],
            "profile": {"kind": "poisson", "duration_seconds": 5.0},
            "slo": slo,
        }
    )
    coordinator = Coordinator(
        scenario, workers, lambda what, _, worker: sent.append((what, worker))
    )
    coordinator.prepare()
    return coordinator, sent


def done(worker: str, tally: Tally, *reasons: str) -> dict:
    return {
        "worker": worker,
        "news": tally.to_state(),
        "reasons": list(reasons),
        "warnings": [],
        "errors": {},
        "summary": {},
    }


def test_nobody_starts_before_all_are_ready_and_all_start_at_once() -> None:
    coordinator, sent = coordinator_of("a", "b")
    coordinator.receive("ready", {"worker": "a"})
    assert ("start", "a") not in sent
    coordinator.receive("ready", {"worker": "b"})
    assert sent[-2:] == [("start", "a"), ("start", "b")]


@pytest.mark.parametrize(
    ("behind", "there", "back", "corrected"),
    [(3.0, 0.01, 0.01, 3.0), (-3.0, 0.01, 0.03, -3.01), (0.01, 0.02, 0.3, 0.0)],
)
def test_a_workers_clock_is_set_by_the_masters(
    behind: float, there: float, back: float, corrected: float
) -> None:
    ready, came, sent = 100.0, 100.0 + there, 101.0
    got = sent + back
    order = {"start_at": 105.0, "ready_at": came, "sent_at": sent}
    found = local_start(order, ready - behind, got - behind)
    assert found == pytest.approx(105.0 - corrected)


def test_workers_begin_with_other_bodies() -> None:
    bodies = tuple(Body(bytes([n])) for n in range(5))
    spec = ModelSpec("m", "1", (), ())
    mix = Mix((Entry("m", spec, bodies), Entry("one", spec, bodies[:1])))
    first = [mix.begun_at(worker / 3).entries for worker in range(3)]
    assert [each[0].bodies[0].data[0] for each in first] == [0, 1, 3]
    for several, one in first:
        assert sorted(several.bodies, key=lambda body: body.data) == list(bodies)
        assert one.bodies == bodies[:1]


def test_a_lost_worker_keeps_what_it_had_answered_and_makes_the_run_invalid() -> None:
    coordinator, _ = coordinator_of("a", "b")
    for worker in ("a", "b"):
        coordinator.receive("ready", {"worker": worker})
    first, second, late = (recorded(n, seed=n) for n in (300, 200, 100))
    coordinator.count("b", tallied(second).to_state())
    coordinator.check_workers(["a"])
    coordinator.receive("done", done("a", tallied(first)))
    coordinator.receive("done", done("b", tallied(late)))  # it was given up before
    assert coordinator.over(0.0)
    assert coordinator.tally().outcomes == tallied(first, second).outcomes
    assert coordinator.reasons() == ["worker b was lost after 200 of its requests"]


def test_a_worker_that_is_lost_before_the_start_does_not_hold_the_others_up() -> None:
    coordinator, sent = coordinator_of("a", "b")
    coordinator.receive("ready", {"worker": "a"})
    coordinator.check_workers(["a"])
    assert sent[-1] == ("start", "a")


def test_a_worker_that_joins_later_is_not_counted() -> None:
    coordinator, _ = coordinator_of("a")
    coordinator.receive("ready", {"worker": "z"})
    coordinator.receive("done", done("z", tallied(recorded(10))))
    assert coordinator.started_at is None
    assert coordinator.tally().count == 0


def with_failures(slo: str, count: int = 2000) -> Coordinator:
    """Every second request fails at once; the others are answered in 5 ms."""
    requests = Requests.empty(count)
    requests.intended[:] = requests.sent[:] = np.arange(count) / 100
    requests.done[:] = requests.sent + 0.005
    requests.outcome[:] = np.where(np.arange(count) % 2, Outcome.OK, Outcome.ERROR)
    coordinator, _ = coordinator_of("a", slo=slo)
    coordinator.receive("done", done("a", tallied(requests, slo=slo)))
    return coordinator


def test_failures_are_in_the_quantiles_and_in_the_objective() -> None:
    coordinator = with_failures("p99<20ms,p40<20ms,p40<4ms,errors<0.1%,ttft_p40<1s")
    text = distributed_text(coordinator)
    assert "missed         50 %" in text
    [latency] = [line for line in text.splitlines() if line.startswith("  latency")]
    assert "p50 5" in latency
    assert "p90 no answer  p99 no answer" in latency
    states = {t.text: found.passed for t, found in coordinator.terms()}
    assert states == {
        "p99<20ms": False,
        "p40<20ms": True,
        "p40<4ms": False,
        "errors<0.1%": False,
        "ttft_p40<1s": None,
    }
    assert "errors<0.1%    MISSED: 50 % missed, 0.1 % allowed" in text
    assert "ttft_p40<1s    NOT JUDGED: " in text
    assert coordinator.document()["objective"][0]["passed"] is False


def test_the_status_of_many_workers_is_that_of_one_run() -> None:
    assert with_failures("p40<20ms").exit_code() is None
    assert with_failures("p40<4ms").exit_code() == 1
    assert with_failures("ttft_p40<1s").exit_code() == 3
    assert with_failures("p40<20ms", count=2).exit_code() == 3


# Locust itself.
