"""Locust as master, workers and UI over senders of our own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from fake_triton import EmptyTensor, FakeModel, FakeTriton, Slow
from monitoring import free_port
from waiting import patience

from exporter.histograms.histogram import Histogram
from loadtests import load_objective, plan
from loadtests.distributed import sender
from loadtests.distributed.coordinator import Coordinator, Tally, distributed_text
from loadtests.result import Outcome, Requests
from loadtests.scenario import Scenario

ROOT = Path(__file__).parents[2]
# Locust warns of things that are its own affair.
ENVIRONMENT = {**os.environ, "PYTHONWARNINGS": "ignore", "PYTHONUNBUFFERED": "1"}


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


def locust(*arguments: str, **options) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "locust", "-f", "loadtests/locustfile.py"),
            *arguments,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env=ENVIRONMENT,
        start_new_session=True,
        **options,
    )


@contextlib.contextmanager
def ending(*children: subprocess.Popen[str]):
    try:
        yield
    finally:
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            child.stdout.close()


def asked(port: int) -> dict:
    url = f"http://127.0.0.1:{port}/stats/requests"
    with urllib.request.urlopen(url, timeout=patience(5)) as answer:
        return json.loads(answer.read())


def arrivals_in(output: str) -> int:
    found = re.search(r"requests +(\d+):", output)
    assert found, output
    return int(found[1])


@pytest.mark.slow
def test_an_open_loop_in_the_ui_shows_microseconds(loaded, tmp_path) -> None:
    port, result = free_port(), tmp_path / "result.json"
    child = locust(
        *("--host", f"grpc://{loaded.grpc}", "--model", "double"),
        *("--load-profile", "poisson", "--rate", "50", "--duration", "3"),
        *("--web-host", "127.0.0.1", "--web-port", str(port)),
        *("--autostart", "--autoquit", "4", "--result", str(result)),
    )
    shown: list[dict] = []
    with ending(child):
        while child.poll() is None:
            with contextlib.suppress(OSError):
                shown.append(asked(port))
            time.sleep(0.3)
        output = child.stdout.read()
    document = json.loads(result.read_text("utf-8"))
    count = document["outcomes"]["ok"]
    assert count == arrivals_in(output) > 100, output
    totals = [e for page in shown for e in page["stats"] if e["name"] == "Aggregated"]
    total = max(totals, key=lambda entry: entry["num_requests"])
    assert total["num_requests"] == count, output
    assert total["num_failures"] == 0
    # The table's median is that of the merged histogram, to the microsecond. Of an even
    # number Locust takes the upper one in the middle, which may be another bucket's.
    merged = Histogram.from_state(document["histograms"]["from_intended"])
    middle = merged.quantile((count // 2 + 0.5) / count)
    assert total["median_response_time"] == pytest.approx(middle * 1e3, rel=0.012)
    assert total["median_response_time"] % 1 != 0
    assert "grpc" in output


def test_two_workers_send_one_schedule_and_their_histograms_are_one(tmp_path) -> None:
    with FakeTriton([FakeModel("m")]) as fake:
        result, port = tmp_path / "result.json", str(free_port())
        child = locust(
            *("--headless", "--processes", "2", "--host", f"http://{fake.http}"),
            *("--model", "m", "--load-profile", "constant", "--rate", "40"),
            *("--duration", "3", "--result", str(result), "--only-summary"),
            *("--master-port", port, "--master-bind-port", port),
        )
        with ending(child):
            output, _ = child.communicate(timeout=patience(120))
        # Each worker tried one request out before.
        assert fake.received("infer") == 120 + 2, output
    document = json.loads(result.read_text("utf-8"))
    assert document["outcomes"] == {"ok": 120}, output
    assert document["histograms"]["from_intended"]["version"] == 1
    ended = [worker["ended"] for worker in document["workers"].values()]
    assert len(ended) == 2
    assert sum(ended) == 120
    assert min(ended) > 30


@pytest.mark.slow
def test_wrong_answers_are_failures_in_locusts_table() -> None:
    with FakeTriton([FakeModel("m")]) as fake:
        fake.on("infer").reply(times=1)
        fake.on("infer").reply(EmptyTensor())
        child = locust(
            *("--headless", "--host", f"grpc://{fake.grpc}", "--model", "m"),
            *("--load-profile", "constant", "--rate", "20", "--duration", "1"),
        )
        with ending(child):
            output, _ = child.communicate(timeout=patience(100))
    assert re.search(r"20\(100\.00%\)", output), output
    assert "wrong: not an answer of this model" in output
    assert child.returncode != 0


@pytest.mark.slow
def test_a_worker_that_is_killed_is_told_and_the_others_count(tmp_path) -> None:
    with FakeTriton([FakeModel("m")]) as fake:
        fake.on("infer").reply(Slow(0.001, phase="network"))
        port, result = str(free_port()), tmp_path / "result.json"
        master = locust(
            *("--headless", "--master", "--expect-workers", "2", "--model", "m"),
            *("--master-bind-port", port, "--host", f"http://{fake.http}"),
            *("--load-profile", "constant", "--rate", "40", "--duration", "20"),
            *("--result", str(result), "--only-summary"),
        )
        workers = [locust("--worker", "--master-port", port) for _ in range(2)]
        with ending(master, *workers):
            fake.wait_for("infer", count=200, timeout_seconds=90)
            os.killpg(workers[0].pid, signal.SIGKILL)
            output, _ = master.communicate(timeout=patience(120))
    assert master.returncode == 3, output
    document = json.loads(result.read_text("utf-8"))
    lost = [w for w in document["workers"].values() if w["lost"]]
    kept = [w for w in document["workers"].values() if not w["lost"]]
    assert len(lost) == len(kept) == 1
    assert kept[0]["ended"] == kept[0]["summary"]["outcomes"]["ok"] > 300
    assert document["outcomes"]["ok"] == kept[0]["ended"] + lost[0]["ended"]
    assert re.search(r"INVALID: worker \S+ was lost after \d+", output)


@pytest.mark.slow
def test_without_a_profile_locusts_users_are_the_concurrency(loaded) -> None:
    child = locust(
        *("--headless", "--host", f"grpc://{loaded.grpc}", "--model", "double"),
        *("-u", "4", "-r", "4", "-t", "15s", "--only-summary"),
    )
    with ending(child):
        output, _ = child.communicate(timeout=patience(100))
    assert child.returncode == 0, output
    assert arrivals_in(output) > 100
    assert "closed, 1 workers" in output


def test_percentiles_have_four_digits_like_the_table() -> None:
    # Locust patches the process that imports it.
    program = """from loadtests.distributed.locust_hooks import bucketed
print(*map(bucketed, (0.0, 0.0123, 16.14, 1634.0)))"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    shown = [*map(float, ended.stdout.split())]
    assert shown == [float(f"{value:.4g}") for value in shown]
    assert shown == pytest.approx([0.0, 0.0123, 16.14, 1634.0], rel=0.012)
