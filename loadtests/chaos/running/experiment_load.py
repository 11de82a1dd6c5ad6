"""The load of an experiment: users' requests during faults, sent from its own thread.

Where no file has the correct answers, the answers before the fault count as correct, so
that a model that starts to return wrong values is detected.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from exporter.errors import TritonError, TritonwatchError
from exporter.network.grpc_core import grpc
from exporter.triton.kserve import service_pb2
from exporter.triton.tensors import decode
from exporter.triton.uncancelled_calls import UncancelledCalls
from loadtests.engine import Options
from loadtests.engine.answer_frames import message_outputs
from loadtests.engine.sender_verdict import verdict_of
from loadtests.errors import LoadError
from loadtests.execute import execute
from loadtests.plan import Mix
from loadtests.result import Outcome, RunResult, quantile_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from exporter.triton.protocol_types import Array
    from loadtests.engine import Progress
    from loadtests.engine.loops import Backoff
    from loadtests.plan import Body, Entry
    from loadtests.result import Floats, Requests
    from loadtests.scenario import Scenario
    from loadtests.target import Target

_PROGRESS_SECONDS: Final = 0.05
_START_SECONDS: Final = 60.0
_SPARE_SECONDS: Final = 10.0
pb: Final[Any] = service_pb2
_INFER: Final = "/inference.GRPCInferenceService/ModelInfer"
_MAX_BYTES: Final = 64 << 20
TOLERANCE: Final = 1e-5
_STALE_SECONDS: Final = 2.0
"""Time without progress after which the run is over, or its sender hangs."""
_OVERTIME_SECONDS: Final = 3.0
"""Time after its timeout within which a request may still end."""


class Load:
    """An open loop that runs until it is stopped; its result has the requests sent.

    Args:
        scenario: as long as the experiment may last at most.
        mix: prepared bodies.
        backoff: reconnects and retries of the client.
    """

    def __init__(self, scenario: Scenario, mix: Mix, backoff: Backoff) -> None:
        self.live = LiveWindow(scenario.timeout_seconds)
        self.result: RunResult | None = None
        self._scenario = scenario
        self._mix = mix
        self._backoff = backoff
        self._origin: float | None = None
        self._error: TritonwatchError | None = None
        self._begun = threading.Event()
        self._stopped_at: float | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._begun.wait(_START_SECONDS)
        if self._error is not None:
            raise self._error
        if self._origin is None:
            raise LoadError(f"the load did not start within {_START_SECONDS:g} s")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def origin(self) -> float:
        """Instant of perf_counter at which the load started."""
        assert self._origin is not None  # noqa: S101 - the block has begun
        return self._origin

    @property
    def problem(self) -> str | None:
        """The error that ended it before it was stopped."""
        return None if self._error is None else str(self._error)

    def stop(self) -> None:
        """Stop sending, and wait for requests in flight."""
        if self._stopped_at is None:
            self._stopped_at = time.perf_counter()
        self._thread.join(self._scenario.timeout_seconds + _SPARE_SECONDS)

    def _run(self) -> None:
        options = Options(
            progress=self._progressed,
            progress_seconds=_PROGRESS_SECONDS,
            stop=lambda: self._stopped_at is not None,
            backoff=self._backoff,
        )
        try:
            found = execute(self._scenario, self._mix, options)
        except TritonwatchError as error:
            self._error = error
        else:
            self.result = self._of_what_was_sent(found)
        finally:
            self._begun.set()

    def _progressed(self, progress: Progress) -> None:
        self.live.feed(progress)
        if self._origin is None:
            self._origin = time.perf_counter() - progress.elapsed_seconds
            self._begun.set()

    def _of_what_was_sent(self, found: RunResult) -> RunResult:
        """Return the result without requests due after the stop, which is no interruption."""
        if self._stopped_at is None or self._origin is None:
            return found
        stopped = min(self._stopped_at - self._origin, found.duration_seconds)
        begun = found.requests.intended <= stopped
        # The loop stops a moment after the request: what was due then was not sent.
        begun &= np.isfinite(found.requests.sent) | (found.requests.outcome != 0)
        whole = RunResult.of(
            replace(found.about, interrupted=False, schedule_seconds=stopped),
            found.requests.where(begun),
            between_responses=found.between_responses,
            duration_seconds=max(stopped, _PROGRESS_SECONDS),
            sender_cpu_seconds=found.sender_cpu_seconds,
            errors=found.errors,
        )
        return verdict_of(
            whole, found.sender_cpu_seconds / whole.duration_seconds, None
        )


class LiveWindow:
    """The last second or so of a run, readable while it runs, from any thread.

    A request counts in a window if it ended within it, or waited all through it: a
    server that hangs is not available although nothing has failed yet. Requests that
    the sender itself never came to do not count.
    `timeout_seconds` is the run's own: as long counts a request without a correct answer.
    """

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout = timeout_seconds
        self._seen: tuple[Requests, float, float] | None = None

    def feed(self, progress: Progress) -> None:
        """Record the progress of the run, in about a microsecond: the sender waits for it."""
        now = time.perf_counter()
        self._seen = (progress.requests, now - progress.elapsed_seconds, now)

    def elapsed_seconds(self) -> float | None:
        """Return seconds since the load's start; None before the first progress and after the last."""
        if self._seen is None:
            return None
        _, origin, fed = self._seen
        now = time.perf_counter()
        return None if now - fed > _STALE_SECONDS else now - origin

    def availability(
        self, window_seconds: float, now: float | None = None
    ) -> float | None:
        """Return the share of correct answers in the window before `now`.

        None where no request was due. `now` is in seconds from the load's
        start, by default this moment.
        """
        found = self._read_window(window_seconds, now)
        if found is None or not found.count:
            return None
        return found.right / found.count

    def latency(
        self, quantile: float, window_seconds: float, now: float | None = None
    ) -> float | None:
        """Return the quantile of latency in seconds, from the intended time.

        Over requests that ended within the window, and those in flight with their wait
        so far, a lower bound of their latency. None where there are neither.
        """
        found = self._read_window(window_seconds, now)
        if found is None or not found.seconds.size:
            return None
        return quantile_of(found.seconds, quantile)

    def _read_window(self, window_seconds: float, now: float | None) -> _Window | None:
        seen = self._seen
        now = self.elapsed_seconds() if now is None else now
        if seen is None or now is None:
            return None
        requests, longest = seen[0], window_seconds + self._timeout + _OVERTIME_SECONDS
        first, last = np.searchsorted(requests.intended, (now - longest, now))
        part = requests.where(slice(int(first), int(last)))
        # The sender writes the outcome last: who reads it first finds the rest in place.
        outcome = part.outcome.copy()
        done, waiting = part.done.copy(), outcome == Outcome.UNSENT
        waiting &= np.isfinite(part.sent)
        # Rejected requests never ended; they were lost when they were due.
        ended_at = np.where(outcome == Outcome.REJECTED, part.intended, done)
        since = now - window_seconds
        ended = ~waiting & (ended_at > since) & (ended_at <= now)
        right = ended & (outcome == Outcome.OK)
        lost = ended & ~right
        seconds = np.where(waiting, now - part.intended, done - part.intended)
        seconds[lost] = self._timeout
        return _Window(
            right=int(right.sum()),
            count=int(ended.sum() + (waiting & (part.intended <= since)).sum()),
            seconds=seconds[ended | waiting],
        )


@dataclass(frozen=True, slots=True)
class _Window:
    right: int
    count: int
    seconds: Floats
    """Latencies of finished requests, and waiting times of others."""


def with_right_answers(target: Target, mix: Mix, timeout_seconds: float) -> Mix:
    """Return the mix with the answers that the server gives now, twice the same, as correct.

    Bodies that have one keep it; so do all over HTTP, of streams and of sequences. Where
    two answers differ, or none comes, nothing is expected.
    """
    if target.protocol != "grpc" or target.ca_file is not None:
        return mix
    options = [("grpc.max_receive_message_length", _MAX_BYTES)]
    channel = grpc.insecure_channel(target.address, options=options)
    ask, calls = channel.unary_unary(_INFER), UncancelledCalls()

    def answer(body: Body) -> Mapping[str, Array]:
        metadata = tuple((n.lower(), v) for n, v in target.headers.items())
        said = calls.answer(
            lambda seconds, _: ask(body.data, timeout=seconds, metadata=metadata),
            model="",
            timeout_seconds=timeout_seconds,
        )
        outputs = message_outputs(pb.ModelInferResponse.FromString(said))
        return {output.name: decode(output) for output in outputs}

    try:
        return Mix(tuple(_entry(entry, answer) for entry in mix.entries))
    finally:
        calls.close(channel.close)


def _entry(entry: Entry, answer: Any) -> Entry:
    stateful = entry.style != "unary" or entry.spec.sequence
    if stateful or any(b.expected for b in entry.bodies):
        return entry
    bodies: list[Body] = []
    for body in entry.bodies:
        try:
            first, second = answer(body), answer(body)
        except (grpc.RpcError, TritonError, ValueError):
            return entry
        if not _alike(first, second):
            return entry
        bodies.append(replace(body, expected=first))
    return replace(
        entry, bodies=tuple(bodies), tolerance=max(entry.tolerance, TOLERANCE)
    )


def _alike(first: Mapping[str, Array], second: Mapping[str, Array]) -> bool:
    return first.keys() == second.keys() and all(
        value.shape == second[name].shape
        and value.dtype == second[name].dtype
        and value.tobytes() == second[name].tobytes()
        for name, value in first.items()
    )
