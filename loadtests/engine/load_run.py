"""One run from start to verdict."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from loadtests import plan, surroundings
from loadtests.engine.grpc_sender import GrpcSender
from loadtests.engine.http_sender import HttpSender
from loadtests.engine.loops import Backoff, ClosedLoop, OpenLoop
from loadtests.engine.recorder import Recorder
from loadtests.engine.sender_verdict import verdict_of
from loadtests.errors import PlanError
from loadtests.result import About, Mode, Outcome, Requests, RunResult

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from typing import Any

    from numpy.typing import ArrayLike, NDArray

    from loadtests.engine.senders import Sender
    from loadtests.plan import Mix
    from loadtests.target import Target

    Loop = OpenLoop | ClosedLoop

MAX_IN_FLIGHT: Final = 50_000
MAX_CONCURRENCY: Final = 10_000
_SETTLE_SECONDS: Final = 0.1
"""Time from the connection to the first request, where no start is given."""
_OVERTIME_SECONDS: Final = 5.0
"""Time after the last due request within which anything is still sent."""
_SPARE_SECONDS: Final = 2.0
"""Time after its timeout for which a request is still awaited."""
_GC_OBJECTS: Final = 100_000


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a run. `requests` are the run's own arrays, not yet complete."""

    elapsed_seconds: float
    started: int
    """Number of requests, in order, that have been sent or rejected."""
    in_flight: int
    finished: NDArray[np.int64]
    """Indexes of those that ended since the last time."""
    requests: Requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a run, in addition to its requests and their schedule."""

    timeout_seconds: float = 10.0
    """Timeout of each request, from its send."""
    slo_seconds: float | None = None
    """The latency with which the verdict compares the sender's own delay."""
    seed: int = 1
    """Seed of the mix, the sequences, and the division of the schedule."""
    start_at: float | None = None
    """Unix time of the start, which several senders have in common."""
    progress: Callable[[Progress], None] | None = None
    """Called in the sending thread: its time delays requests."""
    progress_seconds: float = 0.25
    stop: Callable[[], bool] | None = None
    """Polled with the progress; True ends the run with its present result."""
    profile: Mapping[str, Any] | None = None
    """The profile of the arrivals; kept in the result."""
    share: tuple[int, int] = (0, 1)
    """Number of this sender, from 0, and of all that send the schedule together: it sends
    its share of the arrivals (`plan.share`). Closed loops draw and begin sequences of their own.
    """
    control: Callable[[ClosedLoop], None] | None = None
    """Called with a closed loop when it starts, in its thread, to resize it."""
    backoff: Backoff | None = None
    """Reconnects of the client, and retries of a closed loop after a request without an
    answer; None for the default.
    """


def run_open(
    target: Target,
    mix: Mix,
    arrivals: ArrayLike,
    *,
    in_flight: int = 4096,
    options: Options | None = None,
) -> RunResult:
    """Send each request when it is due, however slow the server is.

    `arrivals` are seconds from the start, in order. Latency counts from then. Where
    `in_flight` requests wait for their answer, the next is rejected: a miss.

    Raises:
        LoadError: there is no server.
        PlanError: the arrivals are no schedule.
    """
    options = options or Options()
    if not 1 <= in_flight <= MAX_IN_FLIGHT:
        raise PlanError(f"found in_flight {in_flight}; want 1 to {MAX_IN_FLIGHT}")
    due = plan.checked(arrivals)
    places = plan.entries(due.size, mix.weights, seed=options.seed)
    chosen = plan.share(due, *options.share, seed=options.seed)
    due, places = due[chosen], places[chosen]
    requests = Requests.empty(due.size)
    requests.intended[:] = due
    requests.entry[:] = places
    length = float(due[-1]) if due.size else 0.0

    def make(sender: Sender, origin: float) -> tuple[Recorder, Loop]:
        recorder = Recorder(requests, origin)
        last = length + _OVERTIME_SECONDS
        loop = OpenLoop(sender, recorder, in_flight=in_flight, last_seconds=last)
        return recorder, loop

    return asyncio.run(_Run(target, mix, options, "open", in_flight, length).run(make))


def run_closed(
    target: Target,
    mix: Mix,
    *,
    concurrency: int,
    duration_seconds: float,
    requests: int | None = None,
    options: Options | None = None,
) -> RunResult:
    """Keep a number of requests in flight, each followed by the next when it ends.

    Ends after `duration_seconds`, or after `requests`, by default as many as a run can
    keep: the result is INVALID where that ended it. A request without an answer is
    followed by the next after a wait (`Options.backoff`); one that was answered, with an
    error too, at once. Its latencies leave out the requests that a slow server
    did not get.

    Raises:
        LoadError: there is no server.
        PlanError: a number is out of range.
    """
    options = options or Options()
    options = replace(options, seed=options.seed + options.share[0])
    if not 0 <= concurrency <= MAX_CONCURRENCY:
        raise PlanError(f"found concurrency {concurrency}; want 1 to {MAX_CONCURRENCY}")
    if not 0 < duration_seconds <= plan.MAX_SECONDS:
        raise PlanError(
            f"found {duration_seconds:g} s; want up to {plan.MAX_SECONDS:g} s"
        )
    # Drawn ahead, the same for the same seed; used again after 65,536.
    places = plan.entries(1 << 16, mix.weights, seed=options.seed).tolist()
    most = plan.MAX_REQUESTS if requests is None else requests

    def make(sender: Sender, origin: float) -> tuple[Recorder, Loop]:
        recorder = Recorder.growing(origin)
        loop = ClosedLoop(
            sender,
            recorder,
            concurrency=concurrency,
            seconds=duration_seconds,
            requests=most,
            entry_of=lambda index: places[index & 0xFFFF],
            backoff=options.backoff or Backoff(),
        )
        if options.control is not None:
            options.control(loop)
        return recorder, loop

    result = asyncio.run(
        _Run(target, mix, options, "closed", concurrency, duration_seconds).run(make)
    )
    if requests is None and len(result.requests) >= most:
        return result.invalid(
            f"it ended after {result.duration_seconds:.4g} of {duration_seconds:g} s, "
            f"with {most} requests, the most that a run keeps; make it shorter, keep "
            "fewer in flight, or share it out over workers"
        )
    return result


class _Run:
    """The constant parts of a run."""

    def __init__(
        self,
        target: Target,
        mix: Mix,
        options: Options,
        mode: Mode,
        in_flight: int,
        length_seconds: float,
    ) -> None:
        self._target = target
        self._mix = mix
        self._options = options
        self._mode: Mode = mode
        self._in_flight = in_flight
        self._length = length_seconds

    async def run(
        self, make: Callable[[Sender, float], tuple[Recorder, Loop]]
    ) -> RunResult:
        """Connect, send, wait for the rest, and judge."""
        options = self._options
        sender = self._sender()
        with _undisturbed():
            async with sender:
                started_at, origin = _start(options.start_at)
                recorder, loop = make(sender, origin)
                cpu = time.process_time()
                loop.start()
                interrupted = await self._watch(sender, recorder, loop)
                cpu = time.process_time() - cpu
                elapsed = time.perf_counter() - origin
        return self._result(recorder, started_at, elapsed, cpu, interrupted=interrupted)

    def _sender(self) -> GrpcSender | HttpSender:
        """Return the sender for the target's protocol.

        Backoff is for gRPC. Over HTTP a request without a free connection opens one, at
        once.
        """
        timeout, seed = self._options.timeout_seconds, self._options.seed
        if self._target.protocol == "grpc":
            return GrpcSender(
                self._target,
                self._mix,
                timeout_seconds=timeout,
                seed=seed,
                backoff=self._options.backoff,
            )
        return HttpSender(self._target, self._mix, timeout_seconds=timeout, seed=seed)

    async def _watch(self, sender: Sender, recorder: Recorder, loop: Loop) -> bool:
        """Wait until all is sent and answered; return whether the run was stopped before."""
        interrupted = False
        try:
            while not await _within(loop.over.wait(), self._options.progress_seconds):
                self._report_progress(recorder)
                if self._options.stop is not None and self._options.stop():
                    interrupted = True
                    loop.stop()
            sender.wind_up()
            # Each has a timeout of its own; this one is for a sender that lost it.
            last = time.perf_counter() + self._options.timeout_seconds + _SPARE_SECONDS
            while recorder.in_flight and time.perf_counter() < last:
                await asyncio.sleep(min(0.01, self._options.progress_seconds))
                if len(recorder.finished) > recorder.in_flight:
                    self._report_progress(recorder)
        finally:
            loop.stop()
        self._report_progress(recorder)
        return interrupted

    def _report_progress(self, recorder: Recorder) -> None:
        finished, recorder.finished = recorder.finished, []
        if self._options.progress is not None:
            self._options.progress(
                Progress(
                    time.perf_counter() - recorder.origin,
                    recorder.started,
                    recorder.in_flight,
                    np.array(finished, np.int64),
                    recorder.requests,
                )
            )

    def _result(
        self,
        recorder: Recorder,
        started_at: float,
        elapsed: float,
        cpu: float,
        *,
        interrupted: bool,
    ) -> RunResult:
        requests = recorder.requests
        length = self._length
        if self._mode == "closed" or interrupted:
            requests = requests.where(slice(0, recorder.started))
        if self._mode == "open" and interrupted:
            # What was not due before it was stopped was not missed.
            length = float(requests.intended.max(initial=0.0))
        lost = np.isfinite(requests.sent) & (requests.outcome == Outcome.UNSENT)
        requests.outcome[lost] = Outcome.TIMEOUT
        requests.done[lost] = elapsed
        last = np.nanmax(requests.done, initial=0.0)
        result = RunResult.of(
            About(
                mode=self._mode,
                protocol=self._target.protocol,
                address=self._target.address,
                entries=tuple(entry.name for entry in self._mix.entries),
                seed=self._options.seed,
                timeout_seconds=self._options.timeout_seconds,
                in_flight=self._in_flight,
                payload_sha256=self._mix.sha256,
                started_at=started_at,
                schedule_seconds=length,
                profile=self._options.profile or {},
                versions=surroundings.versions(),
                hardware=surroundings.hardware(),
                interrupted=interrupted,
                backoff=(self._options.backoff or Backoff()).model_dump(),
            ),
            requests,
            between_responses=recorder.between,
            duration_seconds=self._duration(
                recorder, elapsed, float(last), interrupted=interrupted
            ),
            sender_cpu_seconds=cpu,
            errors=recorder.errors,
            unanswered=replace(
                recorder.unanswered, waited_seconds=recorder.waited_seconds
            ),
        )
        return verdict_of(
            result,
            cpu / elapsed,
            self._options.slo_seconds,
            starved=recorder.starved,
            queued=recorder.queued,
        )

    def _duration(
        self, recorder: Recorder, elapsed: float, last: float, *, interrupted: bool
    ) -> float:
        if interrupted:
            return elapsed
        if self._mode == "closed" and not recorder.waited_seconds:
            return last or elapsed
        # While the next are held back nothing ends, and the time counts.
        return max(min(self._length, elapsed), last)


async def _within(waiting: Any, seconds: float) -> bool:
    try:
        await asyncio.wait_for(waiting, seconds)
    except TimeoutError:
        return False
    return True


def _start(start_at: float | None) -> tuple[float, float]:
    """Return the start of the run: as Unix time and as an instant of perf_counter."""
    now, instant = time.time(), time.perf_counter()
    wait = _SETTLE_SECONDS if start_at is None else start_at - now
    return now + wait, instant + wait


@contextlib.contextmanager
def _undisturbed() -> Generator[None]:
    """Raise the limit of descriptors, and run the garbage collector less often."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = gc.get_threshold()
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
