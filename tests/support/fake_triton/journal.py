"""What a fake server received: bounded records, calls in progress, and waiting for them."""

from __future__ import annotations

import threading
from collections import Counter, deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from waiting import patience

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

Protocol = Literal["grpc", "http", "metrics"]
Operation = Literal[
    "server_live",
    "server_ready",
    "server_metadata",
    "model_ready",
    "model_metadata",
    "model_config",
    "repository_index",
    "repository_load",
    "repository_unload",
    "statistics",
    "infer",
    "trace_setting",
    "trace_update",
    "metrics",
]
Scripted = Operation | Literal["any"]
KEPT_DATA_BYTES: Final = 4096
KEPT_REQUESTS: Final = 10_000


@dataclass(frozen=True, slots=True)
class ReceivedTensor:
    """An input as it came; `data` is its first 4,096 bytes, `size_bytes` all of it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: bytes
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """One request. `headers` are HTTP headers or gRPC metadata, names in lower case.

    `at_seconds` is the monotonic clock when it was understood; `deadline_seconds` the
    time the client still gave it (gRPC only; None: no deadline).
    """

    protocol: Protocol
    operation: Operation
    model: str
    version: str
    request_id: str
    headers: Mapping[str, str]
    at_seconds: float
    deadline_seconds: float | None = None
    inputs: tuple[ReceivedTensor, ...] = ()
    outputs: tuple[str, ...] = ()
    parameters: Mapping[str, object] = field(default_factory=dict)


_Key = tuple[Protocol | None, Operation, str | None]


class Journal:
    """Keeps the last `KEPT_REQUESTS` and counts those in progress."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._records: deque[ReceivedRequest] = deque(maxlen=KEPT_REQUESTS)
        self._received: Counter[_Key] = Counter()
        self._current: Counter[_Key] = Counter()
        self._peak: Counter[_Key] = Counter()

    @contextmanager
    def tracking(self, record: ReceivedRequest, *, known: bool) -> Generator[None]:
        """Record a request and count it as in progress for the length of the block.

        Only `known` model names get counters of their own: names come from outside.
        """
        keys = _keys(record, known=known)
        with self._changed:
            self._records.append(record)
            for key in keys:
                self._received[key] += 1
                self._current[key] += 1
                self._peak[key] = max(self._peak[key], self._current[key])
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._current.subtract(keys)
                self._changed.notify_all()

    def records(self) -> tuple[ReceivedRequest, ...]:
        """What is kept, oldest first."""
        with self._changed:
            return tuple(self._records)

    def forget(self) -> None:
        """Drop the records, counts and peaks; calls in progress stay counted."""
        with self._changed:
            self._records.clear()
            self._received.clear()
            self._peak = Counter(self._current)

    def received(
        self,
        operation: Operation,
        *,
        model: str | None = None,
        protocol: Protocol | None = None,
    ) -> int:
        """Return the number of calls of this kind since the last forget(), kept or not."""
        with self._changed:
            return self._received[protocol, operation, model]

    def peak(self, operation: Operation = "infer") -> int:
        """The most calls of this kind in progress at any one time."""
        with self._changed:
            return self._peak[None, operation, None]

    def wait_for(
        self,
        operation: Operation,
        *,
        model: str | None = None,
        protocol: Protocol | None = None,
        count: int = 1,
        timeout_seconds: float | None = None,
    ) -> int:
        """Wait until `count` such calls have come in all; TimeoutError if they do not."""
        key = (protocol, operation, model)
        timeout_seconds = timeout_seconds or patience()
        with self._changed:
            if not self._changed.wait_for(
                lambda: self._received[key] >= count, timeout_seconds
            ):
                raise TimeoutError(
                    f"{self._received[key]} {operation} requests came in "
                    f"{timeout_seconds} s, {count} were awaited"
                )
            return self._received[key]


def _keys(record: ReceivedRequest, *, known: bool) -> tuple[_Key, ...]:
    models: tuple[str | None, ...] = (None, record.model) if known else (None,)
    protocols: tuple[Protocol | None, ...] = (None, record.protocol)
    return tuple(
        (protocol, record.operation, model)
        for model in models
        for protocol in protocols
    )
