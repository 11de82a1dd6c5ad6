"""Messages between Locust's master and its workers, without Locust."""

from __future__ import annotations

import json
from dataclasses import fields

import numpy as np
import pytest

from exporter.histograms.histogram import Histogram
from exporter.triton.protocol_types import ModelSpec
from loadtests import plan, result_file
from loadtests.distributed import coordinator as coordinators
from loadtests.distributed import sender
from loadtests.distributed.coordinator import Coordinator, status_of
from loadtests.plan import Body, Entry, Mix
from loadtests.result import Outcome, Requests
from loadtests.result_file import packed
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


def ready(worker: str) -> dict:
    return {"worker": worker, "described": {"entries": ["m"]}}


def done(worker: str, requests: Requests, *reasons: str) -> dict:
    unanswered = {"count": 1, "first_seconds": len(requests) / 1e3}
    return {
        "worker": worker,
        "news": packed(requests),
        "duration_seconds": 5.0,
        "sender_cpu_seconds": 0.5,
        "in_flight": 7,
        "reasons": list(reasons),
        "warnings": ["the same of each"],
        "errors": {"refused": 1},
        "unanswered": unanswered | {"last_seconds": 4.0, "waited_seconds": 0.25},
        "between_responses": Histogram().to_state(),
    }


@pytest.mark.parametrize("workers", [2, 5])
def test_the_result_of_many_workers_is_that_of_one_process(workers, tmp_path) -> None:
    stream, names = recorded(20_000), [f"w{n}" for n in range(workers)]
    coordinator, _ = coordinator_of(*names)
    for name in names:
        coordinator.receive("ready", ready(name))
    for worker, name in enumerate(names):
        mine = stream.where(plan.share(stream.intended, worker, workers, seed=3))
        # In reports of a few, through what the wire can hold.
        for start in range(0, 2100, 700):
            news = packed(mine.where(slice(start, start + 700)))
            coordinator.count(name, json.loads(json.dumps(news)))
        coordinator.receive("done", done(name, mine.where(slice(2100, None))))
    file = tmp_path / "result.json"
    result_file.write(coordinator.result(), file)
    found = result_file.read(file)
    for part in fields(Requests):
        ours, theirs = (getattr(r, part.name) for r in (found.requests, stream))
        assert np.array_equal(ours, theirs, equal_nan=True), part.name
    assert (found.about.workers, found.about.entries) == (workers, ("m",))
    assert found.about.in_flight == 7 * workers
    assert found.errors == {"refused": workers}
    assert found.unanswered.count == workers
    first = min(
        len(stream.where(plan.share(stream.intended, n, workers, seed=3)))
        for n in range(workers)
    )
    assert found.unanswered.first_seconds == pytest.approx((first - 2100) / 1e3)
    assert found.verdict.valid
    assert found.verdict.warnings == ("the same of each",)


def test_more_requests_than_a_result_keeps_make_it_invalid(monkeypatch) -> None:
    monkeypatch.setattr(coordinators, "MAX_REQUESTS", 250)
    coordinator, _ = coordinator_of("a")
    coordinator.count("a", packed(recorded(200)))
    coordinator.receive("done", done("a", recorded(100)))
    result = coordinator.result()
    assert len(result.requests) == 200
    assert "100 requests are left out" in str(result.verdict)


def test_nobody_starts_before_all_are_ready_and_all_start_at_once() -> None:
    coordinator, sent = coordinator_of("a", "b")
    coordinator.receive("ready", ready("a"))
    assert ("start", "a") not in sent
    coordinator.receive("ready", ready("b"))
    assert sent[-2:] == [("start", "a"), ("start", "b")]


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
        coordinator.receive("ready", ready(worker))
    first, second, late = (recorded(n, seed=n) for n in (300, 200, 100))
    coordinator.count("b", packed(second))
    coordinator.check_workers(["a"])
    coordinator.receive("done", done("a", first))
    coordinator.receive("done", done("b", late))  # it was given up before
    assert coordinator.over(0.0)
    result = coordinator.result()
    assert len(result.requests) == 300 + 200
    reason = "worker b was lost after 200 of its requests"
    assert result.verdict.reasons == (reason,)


def test_a_worker_that_is_lost_before_the_start_does_not_hold_the_others_up() -> None:
    coordinator, sent = coordinator_of("a", "b")
    coordinator.receive("ready", ready("a"))
    coordinator.check_workers(["a"])
    assert sent[-1] == ("start", "a")


def test_a_worker_that_joins_later_is_not_counted() -> None:
    coordinator, _ = coordinator_of("a")
    coordinator.receive("ready", ready("z"))
    coordinator.receive("done", done("z", recorded(10)))
    assert coordinator.started_at is None
    assert len(coordinator.result().requests) == 0


def status(slo: str | None, *reasons: str, count: int = 2000) -> int | None:
    """Every second request fails at once; the others are answered in 5 ms."""
    requests = Requests.empty(count)
    requests.intended[:] = requests.sent[:] = np.arange(count) / 100
    requests.done[:] = requests.sent + 0.005
    requests.outcome[:] = np.where(np.arange(count) % 2, Outcome.OK, Outcome.ERROR)
    coordinator, _ = coordinator_of("a", slo=slo)
    coordinator.receive("done", done("a", requests, *reasons))
    return status_of(coordinator.result())


def test_the_status_of_many_workers_is_that_of_one_run() -> None:
    assert status(None) is None  # Locust's own: it counts failures
    assert status("p40<20ms") == 0
    assert status("p40<4ms") == 1
    assert status("ttft_p40<1s") == 3
    assert status("p40<20ms", count=2) == 3
    assert status("p40<20ms", "the sender was the bottleneck") == 3
