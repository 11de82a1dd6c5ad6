"""A closed loop whose server goes away: it asks now and then, and says what it did."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from fake_triton import INTERNAL, QUEUE_FULL
from hypothesis import given
from hypothesis import strategies as st

from loadtests import plan
from loadtests.engine import Options, run_closed
from loadtests.engine.loops import MAX_PER_SECOND, Backoff, Pauses
from loadtests.plan import Mix
from loadtests.result import Outcome

if TYPE_CHECKING:
    from exporter.triton.embedded import EmbeddedTriton
    from loadtests.engine.loops import ClosedLoop

ROOT = Path(__file__).parents[2]
CONCURRENCY = 8
QUICK = Options(timeout_seconds=5.0)


class Outage:
    """Kills the server during a run, starts it again, and ends the run once it answers."""

    def __init__(self, server: EmbeddedTriton) -> None:
        self._server = server
        self._thread = threading.Thread(target=self._restart)
        self._back = threading.Event()
        self._answered = 0

    def begins(self, loop) -> None:
        self._loop = loop

    def __call__(self, progress) -> None:
        right = progress.requests.where(progress.finished).count(Outcome.OK)
        if progress.elapsed_seconds > 0.3 and self._thread.ident is None:
            self._thread.start()
        if self._back.is_set():
            self._answered += right
            if self._answered >= 2 * CONCURRENCY:
                self._loop.stop()

    def _restart(self) -> None:
        self._server.kill()
        time.sleep(0.5)
        self._server.start()
        self._back.set()

    def join(self) -> None:
        self._thread.join()


@pytest.mark.parametrize(
    ("protocol", "style", "model"),
    [
        ("grpc", "unary", "tests/data/models/double"),
        ("http", "unary", "tests/data/models/double"),
        ("grpc", "stream", "tests/data/models_streaming/stream"),
    ],
    ids=["grpc", "http", "stream"],
)
@pytest.mark.triton
def test_a_server_that_is_killed_is_asked_as_seldom_as_the_back_off_says(
    start_triton, target_of, mix_of, tmp_path, protocol, style, model
) -> None:
    repository = tmp_path / "models"
    shutil.copytree(ROOT / model, repository / Path(model).name)
    server = start_triton(repository)
    target = target_of(server, protocol)
    (entry,) = mix_of(target, Path(model).name).entries
    outage = Outage(server)
    result = run_closed(
        target,
        Mix((replace(entry, style=style),)),
        concurrency=CONCURRENCY,
        duration_seconds=60.0,
        options=Options(
            timeout_seconds=15.0,
            progress=outage,
            progress_seconds=0.05,
            control=outage.begins,
        ),
    )
    outage.join()
    requests = result.requests
    failed = requests.where(requests.outcome != Outcome.OK)
    away = failed.done.max() - failed.done.min()
    assert away > 0.4
    # Each of them failed, waited, failed again …
    assert len(failed) <= CONCURRENCY * (away / Backoff().first_seconds + 2)
    assert len(failed) >= 2 * CONCURRENCY
    assert (requests.outcome[requests.sent > failed.done.max()] == Outcome.OK).any()
    # … and that is what is told.
    assert result.about.backoff == Backoff().model_dump()
    told = result.unanswered
    assert told.count == len(failed) == failed.count(Outcome.ERROR), result.errors
    assert told.first_seconds == pytest.approx(failed.done.min())
    assert told.last_seconds == pytest.approx(failed.done.max())
    waits = len(failed) - CONCURRENCY
    assert told.waited_seconds >= waits * Backoff().first_seconds - 1e-3
    assert not result.verdict.valid
    assert f"the server was unavailable: {told.count} requests" in str(result.verdict)


class Away:
    """Takes a fake server down in a run, and ends the run so many seconds later."""

    def __init__(self, fake, seconds: float) -> None:
        self._fake = fake
        self._seconds = seconds
        self._down = contextlib.ExitStack()
        self.loop: ClosedLoop | None = None
        self.began: float | None = None
        self.ended = 0.0

    def begins(self, loop) -> None:
        self.loop = loop

    def __call__(self, progress) -> None:
        if self.began is None:
            self._down.enter_context(self._fake.down())
            self.began = progress.elapsed_seconds
        elif progress.elapsed_seconds > self.began + self._seconds and not self.ended:
            self.ended = progress.elapsed_seconds
            self.loop.stop()

    def run(self, target, mix, concurrency, backoff, progress=None):
        with self._down:
            return run_closed(
                target,
                mix,
                concurrency=concurrency,
                duration_seconds=60.0,
                options=replace(
                    QUICK,
                    backoff=backoff,
                    progress=progress or self,
                    progress_seconds=0.05,
                    control=self.begins,
                ),
            )


@given(
    st.floats(0.01, 10), st.floats(1, 10), st.floats(0.01, 100), st.integers(1, 10_000)
)
def test_waits_grow_by_the_factor_up_to_the_longest(
    first: float, factor: float, longest: float, failures: int
) -> None:
    backoff = Backoff(first_seconds=first, factor=factor, longest_seconds=longest)
    wait, following = backoff.wait_seconds(failures), backoff.wait_seconds(failures + 1)
    assert wait <= following <= longest
    if following < longest:
        assert following == pytest.approx(wait * factor)


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_waits_grow_while_it_stays_away(fake, target_of, mix_of, protocol) -> None:
    target = target_of(fake, protocol)
    backoff = Backoff(first_seconds=0.02, factor=2, longest_seconds=0.3)
    away = Away(fake, 0.7)
    result = away.run(target, mix_of(target, "fake"), 1, backoff)
    failed = result.requests.done[result.requests.outcome == Outcome.ERROR]
    waits = [backoff.wait_seconds(n + 1) for n in range(len(failed) - 1)]
    assert len(waits) >= 3
    assert (np.diff(failed) >= waits).all()
    # What nothing was sent in is a part of the run, and of its throughput.
    assert result.duration_seconds >= away.ended


def test_fewer_wanted_while_all_wait_are_fewer_who_ask(fake, target_of, mix_of) -> None:
    target = target_of(fake, "grpc")
    away = Away(fake, 0.7)
    resized: list[float] = []

    def steer(progress) -> None:
        away(progress)
        if not resized and progress.elapsed_seconds > away.began + 0.2:
            resized.append(progress.elapsed_seconds)
            away.loop.resize(1)

    backoff = Backoff()
    result = away.run(target, mix_of(target, "fake"), 20, backoff, steer)
    done = result.requests.done[result.requests.outcome == Outcome.ERROR]
    later = done[done > resized[0]]
    # Those in flight at that moment, and then one at a time.
    assert later.size <= 20 + (done.max() - resized[0]) / backoff.first_seconds + 1
    assert (later > resized[0] + 2 * backoff.first_seconds).any()


@pytest.mark.parametrize("protocol", ["grpc", "http"])
@pytest.mark.parametrize("answer", [INTERNAL, QUEUE_FULL])
def test_an_error_that_the_server_answers_holds_nobody_back(
    fake, target_of, mix_of, protocol, answer
) -> None:
    target = target_of(fake, protocol)
    mix = mix_of(target, "fake")
    fake.on("infer").reply(answer)
    result = run_closed(
        target, mix, concurrency=4, duration_seconds=30.0, requests=100, options=QUICK
    )
    assert result.requests.count(Outcome.ERROR) == 100
    assert (result.unanswered.count, result.unanswered.waited_seconds) == (0, 0.0)
    assert "away" not in str(result.verdict)


def test_however_many_wait_only_so_many_a_second_ask_again() -> None:
    async def asked() -> np.ndarray:
        instants: list[float] = []
        all_asked = asyncio.Event()

        def ask(_: int) -> None:
            instants.append(time.perf_counter())
            if len(instants) == 300:
                all_asked.set()

        backoff = Backoff(first_seconds=0.01, longest_seconds=0.01)
        pauses = Pauses(backoff, ask)
        began = time.perf_counter()
        for _ in range(300):
            pauses.begin(1)
        await all_asked.wait()
        assert len(pauses) == 0
        return np.array(instants) - began

    instants = asyncio.run(asked())
    # asyncio's timers may fire by its clock's resolution early.
    assert (instants >= np.arange(1, 301) / MAX_PER_SECOND - 1e-6).all()


def test_a_run_that_is_full_before_its_time_says_so(
    fake, target_of, mix_of, monkeypatch
) -> None:
    monkeypatch.setattr(plan, "MAX_REQUESTS", 200)
    target = target_of(fake, "grpc")
    mix = mix_of(target, "fake")
    result = run_closed(
        target, mix, concurrency=4, duration_seconds=60.0, options=QUICK
    )
    assert result.requests.count(Outcome.OK) == 200
    assert result.duration_seconds < 60.0
    assert "of 60 s, with 200 requests, the most that a run keeps" in str(
        result.verdict
    )
    asked = run_closed(
        target,
        mix,
        concurrency=4,
        duration_seconds=60.0,
        requests=200,
        options=QUICK,
    )
    assert "the most that a run keeps" not in str(asked.verdict)
