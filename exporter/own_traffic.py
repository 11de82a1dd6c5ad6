"""Our own requests, counted so that they can be taken out of production's numbers."""

from __future__ import annotations

import contextlib
import itertools
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal

from exporter import errors

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence

    from exporter.inventory import ModelKey

REQUEST_ID_PREFIX: Final = "tritonwatch-"
"""Every request of ours carries an id that begins so; traces and taps know it by that."""


Ending = Literal["ok", "raised", "failed", "unresolved", "refused"]
"""What Triton books a request of ours as: a success, a failure that was executed, one
that was not, nobody knows, nothing."""
Touched = tuple["ModelKey", int]
"""A model version and the batch size with which a request reaches it."""


@dataclass(frozen=True, slots=True)
class OwnCounts:
    """Own requests to one model version since the start of this process.

    `ok` and `failed` are what Triton books as success and failure, which is not always
    what the client saw.
    `unresolved` never got an answer, so nobody can say whether Triton counted them.
    """

    ok: int = 0
    failed: int = 0
    unresolved: int = 0
    in_flight: int = 0
    batches: Mapping[int, int] = field(default_factory=dict)
    """Batch size -> how many of `ok` had it."""
    raised_batches: Mapping[int, int] = field(default_factory=dict)
    """Batch size -> how many of `failed` were executed with it."""
    unresolved_batches: Mapping[int, int] = field(default_factory=dict)
    """Batch size -> how many of `unresolved` had it."""
    batches_in_flight: Mapping[int, int] = field(default_factory=dict)
    """Batch size -> how many of `in_flight` have it."""

    @property
    def inferences(self) -> int:
        """What `ok` is in inferences: a batch of n counts n."""
        return sum(size * count for size, count in self.batches.items())

    def executed(self, batch_size: int) -> int:
        """How many executions of this batch size were ours."""
        return self.batches.get(batch_size, 0) + self.raised_batches.get(batch_size, 0)

    @property
    def sizes(self) -> set[int]:
        """The batch sizes that were asked for."""
        return {*self.batches, *self.raised_batches, *self.unresolved_batches}

    @property
    def inferences_unresolved(self) -> int:
        """What `unresolved` would be in inferences."""
        return sum(size * count for size, count in self.unresolved_batches.items())

    @property
    def inferences_in_flight(self) -> int:
        """What `in_flight` is in inferences."""
        return sum(size * count for size, count in self.batches_in_flight.items())

    def begun(self, batch_size: int) -> OwnCounts:
        """With one more request in flight."""
        return replace(
            self,
            in_flight=self.in_flight + 1,
            batches_in_flight=_changed(self.batches_in_flight, batch_size, 1),
        )

    def ended(self, batch_size: int, ending: Ending) -> OwnCounts:
        """With one request less in flight, which ended so."""
        is_ok = ending == "ok"
        return replace(
            self,
            ok=self.ok + is_ok,
            failed=self.failed + (ending in {"raised", "failed"}),
            unresolved=self.unresolved + (ending == "unresolved"),
            in_flight=self.in_flight - 1,
            batches=_changed(self.batches, batch_size, is_ok),
            raised_batches=_changed(
                self.raised_batches, batch_size, ending == "raised"
            ),
            unresolved_batches=_changed(
                self.unresolved_batches, batch_size, ending == "unresolved"
            ),
            batches_in_flight=_changed(self.batches_in_flight, batch_size, -1),
        )


def _changed(counts: Mapping[int, int], size: int, change: int) -> dict[int, int]:
    changed = {**counts, size: counts.get(size, 0) + change}
    return {size: count for size, count in changed.items() if count}


class OwnTraffic:
    """The ledger of own requests. Thread-safe."""

    def __init__(self, *, run_id: str) -> None:
        self._lock = threading.Lock()
        self._counts: dict[ModelKey, OwnCounts] = {}
        self._numbers = itertools.count(1)
        self._run_id = run_id

    def new_request_id(self, purpose: str) -> str:
        """An id never used before, recognisable as ours."""
        return f"{REQUEST_ID_PREFIX}{purpose}-{self._run_id}-{next(self._numbers)}"

    def counts(self, key: ModelKey) -> OwnCounts:
        """What was asked of one model version so far."""
        with self._lock:
            return self._counts.get(key, OwnCounts())

    def snapshot(self) -> dict[ModelKey, OwnCounts]:
        """All counts at one instant."""
        with self._lock:
            return dict(self._counts)

    def forget(self, key: ModelKey) -> bool:
        """Begin anew for a model version that is gone, unless one is in flight to it."""
        with self._lock:
            if self._counts.get(key, OwnCounts()).in_flight:
                return False
            self._counts.pop(key, None)
            return True

    @contextlib.contextmanager
    def request(
        self, touched: Iterable[Touched], *, backend: str = ""
    ) -> Generator[None]:
        """Account for one own request that reaches `touched`: an ensemble and its steps.

        What the body raises decides where it counts; errors pass through.
        """
        shares = tuple(touched)
        self._begin(shares)
        ending: Ending = "ok"
        try:
            yield
        except BaseException as error:
            ending = _ending(error, backend)
            raise
        finally:
            self._end(shares, ending)

    def _begin(self, shares: Sequence[Touched]) -> None:
        with self._lock:
            for key, size in shares:
                self._counts[key] = self._counts.get(key, OwnCounts()).begun(size)

    def _end(self, shares: Sequence[Touched], ending: Ending) -> None:
        # One step: a look in between would see a request both done and in flight.
        with self._lock:
            for place, (key, size) in enumerate(shares):
                # Triton books a failure where it happened; for an ensemble that is the
                # ensemble itself and one of its steps, unknown which.
                elsewhere = place > 0 and ending in {"raised", "failed"}
                here = "refused" if elsewhere else ending
                self._counts[key] = self._counts[key].ended(size, here)


def _ending(error: BaseException, backend: str) -> Ending:
    if isinstance(error, errors.ModelError):
        return _python_ending(str(error)) if backend == "python" else "failed"
    if isinstance(error, errors.InvalidRequestError | errors.UnavailableError):
        # Refused before it reached a scheduler: in no statistic.
        return "refused"
    return "unresolved"


def _python_ending(text: str) -> Ending:
    """How Triton 2.51 books an error of its Python backend, as measured.

    A model that raises is an execution and a failure, a dead stub only a failure, and
    an error that the model answers with is an execution and a success.
    """
    if "Failed to process the request(s) for model" in text:
        return "raised"
    if "Stub process" in text:
        return "failed"
    return "ok"
