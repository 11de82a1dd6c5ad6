"""Requests of a shadow comparison: their inputs, and how both models are asked.

Champion and challenger are asked from a thread each, and never wait for one another: a
challenger that hangs or crashes costs pairs, and neither a champion's measurement nor
anything else.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
from pydantic import ValidationError

from exporter import errors
from exporter.access.own_traffic import REQUEST_ID_PREFIX
from exporter.errors import GoldenDataError
from exporter.features.comparison.answer_pairs import Answered
from exporter.features.golden import golden_data
from exporter.features.golden.golden_settings import GoldenData
from exporter.own_requests.answer_checks import reply_fault
from exporter.own_requests.own_request import own_request
from exporter.own_requests.payload import make_payload
from exporter.own_requests.reach import own_inference

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from exporter.access.collector_base import Access
    from exporter.access.mirror_hub import Mirrored
    from exporter.features.golden.golden_data import Prepared
    from exporter.own_requests.payload import InputSettings
    from exporter.triton.protocol_types import Array, ModelSpec

MAX_HELD_BYTES: Final = 16 << 20
"""Limit of mirrored requests that wait to be sent."""
_MOST_HELD: Final = 256


@dataclass(frozen=True, slots=True)
class Input:
    """Tensors of one request, and the right class where it is known."""

    arrays: Mapping[str, Array]
    label: int | None = None


class MirroredInputs:
    """The latest mirrored requests, each given out once. Thread-safe."""

    name = "mirror"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: deque[tuple[int, Mapping[str, Array]]] = deque()
        self._bytes = 0

    def add(self, requests: Sequence[Mirrored]) -> None:
        """Keep mirrored requests; drop the oldest if there are too many."""
        with self._lock:
            for request in requests:
                ours = request.request_id.startswith(REQUEST_ID_PREFIX)
                size = sum(array.nbytes for array in request.inputs.values())
                usable = request.inputs and request.as_sent and not ours
                if not usable or size > MAX_HELD_BYTES:
                    continue
                self._held.append((size, request.inputs))
                self._bytes += size
                while self._bytes > MAX_HELD_BYTES or len(self._held) > _MOST_HELD:
                    self._bytes -= self._held.popleft()[0]

    def next(self, spec: ModelSpec) -> Input | None:
        """The latest one."""
        with self._lock:
            if not self._held:
                return None
            size, arrays = self._held.pop()
            self._bytes -= size
        known = {tensor.name for tensor in spec.inputs}
        return Input({name: array for name, array in arrays.items() if name in known})


class GoldenInputs:
    """Rows of a golden file in random order, repeated without end.

    Raises:
        GoldenDataError: it cannot be read, or its labels are not classes.
    """

    name = "golden"

    def __init__(self, path: Path, label: str, seed: int) -> None:
        settings = _golden_settings(path)
        self._golden = golden_data.read(settings)
        self._labels = self._golden.columns.get(label)
        self._label = label
        self._rng = np.random.default_rng(seed)
        self._order: list[int] = []
        self._prepared: tuple[ModelSpec, Prepared] | None = None

    @property
    def sha256(self) -> str:
        """SHA-256 of the file."""
        return self._golden.sha256

    @property
    def labelled(self) -> bool:
        """Return whether the right classes are known."""
        return self._labels is not None

    def next(self, spec: ModelSpec) -> Input:
        """One row as a request of one.

        Raises:
            GoldenDataError: the file's columns are not those that the model takes.
        """
        if self._prepared is None or self._prepared[0] != spec:
            self._prepared = spec, golden_data.prepare(self._golden, spec)
        if not self._order:
            self._order = self._rng.permutation(self._golden.rows).tolist()
        row = self._order.pop()
        request = self._prepared[1].request(np.array([row]))
        return Input(request, self._right(row))

    def _right(self, row: int) -> int | None:
        if self._labels is None:
            return None
        value = self._labels[row]
        try:
            right = int(float(value))
        except (TypeError, ValueError, OverflowError):
            right = None
        # A regression's label, like 1.7, would be read as class 1.
        if right is None or right != float(value):
            raise self._golden.problem(
                f"is {value!r}; want a class as an integer",
                name=self._label,
                row=row,
            )
        return right


def _golden_settings(path: Path) -> GoldenData:
    try:
        return GoldenData(file=path)
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise GoldenDataError(str(path), reason) from None


class SyntheticInputs:
    """Tensors made up from the model's signature."""

    name = "synthetic"

    def __init__(self, overrides: dict[str, InputSettings], seed: int) -> None:
        self._overrides = overrides
        self._rng = np.random.default_rng(seed)

    def next(self, spec: ModelSpec) -> Input:
        """New ones every time.

        Raises:
            TritonError: they cannot be made to fit the model.
        """
        return Input(make_payload(spec, self._overrides, self._rng).inputs)


class FirstInputs:
    """Takes the first of several sources that has an input."""

    def __init__(self, sources: Sequence[Inputs]) -> None:
        self._sources = sources
        self.name: str = sources[0].name

    def next(self, spec: ModelSpec) -> Input | None:
        """Return an input from the first source that has one."""
        for source in self._sources:
            found = source.next(spec)
            if found is not None:
                self.name = source.name
                return found
        return None


Inputs = MirroredInputs | GoldenInputs | SyntheticInputs | FirstInputs
"""A source of inputs; `next` returns None if none are available now."""


_LINGER_SECONDS: Final = 1.0
"""Seconds for which a late answer is still waited for, to learn how Triton counted it."""


@dataclass(slots=True)
class Side:
    """One side of a pair in progress; `done` is set once there is an answer."""

    spec: ModelSpec
    answered: Answered = field(default_factory=lambda: Answered(None))
    done: threading.Event = field(default_factory=threading.Event)


class RequestThread:
    """A thread that sends one request at a time; while busy, it accepts none."""

    def __init__(self, name: str, send: Callable[[Side, Input], Answered]) -> None:
        self._send = send
        self._wake = threading.Condition()
        self._job: tuple[Side, Input] | None = None
        self._busy = False
        self._began = 0.0
        self._waited = 0.0
        self._ending = False
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def offer(self, side: Side, inputs: Input, wait_seconds: float) -> bool:
        """Start a request; False if an earlier one keeps the thread busy for so long."""
        with self._wake:
            self._wake.wait_for(lambda: self._ending or not self._busy, wait_seconds)
            if self._busy or self._ending:
                return False
            self._job, self._busy = (side, inputs), True
            self._began = time.monotonic()
            self._wake.notify_all()
        return True

    @property
    def waited_seconds(self) -> float:
        """Return how long answers were waited for, in all; one still under way counts."""
        with self._wake:
            return self._waited + self._under_way()

    def close(self) -> None:
        """Accept no more requests; the thread ends after its present one."""
        with self._wake:
            self._ending = True
            self._wake.notify()

    def _work(self) -> None:
        while True:
            with self._wake:
                while self._job is None:
                    if self._ending:
                        return
                    self._wake.wait()
                side, inputs = self._job
                self._job = None
            try:
                side.answered = self._send(side, inputs)
            except Exception as error:  # noqa: BLE001 - reported with the comparison
                side.answered = Answered(None, f"{type(error).__name__}: {error}")
            with self._wake:
                self._waited += self._under_way()
                self._busy = False
                self._wake.notify_all()
            side.done.set()

    def _under_way(self) -> float:
        return time.monotonic() - self._began if self._busy else 0.0


def infer(
    access: Access, timeout_seconds: float, side: Side, inputs: Input
) -> Answered:
    """Send one side's request as our own, and wait; a failure is an answer, too."""
    spec = side.spec
    request = own_request(spec, access.own.new_request_id("shadow"), inputs.arrays)
    try:
        with own_inference(access, spec, request) as own:
            reply = access.grpc.infer(
                request, timeout_seconds=timeout_seconds + _LINGER_SECONDS
            )
            own.reply = reply
    except errors.TritonError as error:
        return Answered(None, f"{spec.name} {spec.version}: {error}")
    if reply.duration_seconds > timeout_seconds:
        return Answered(
            None,
            f"{spec.name} {spec.version}: the answer took "
            f"{reply.duration_seconds:.3f} s; allowed are {timeout_seconds:g} s",
        )
    fault = reply_fault(spec, reply, frozenset())
    if fault:
        return Answered(None, f"{spec.name} {spec.version}: {fault}")
    return Answered(reply)


def difference(champion: ModelSpec, challenger: ModelSpec) -> str:
    """Return why the two cannot get the same requests, "" if they can."""
    for spec in (champion, challenger):
        kind = "decoupled" if spec.decoupled else "sequence" if spec.sequence else ""
        if kind:
            return (
                f"{spec.name} is a {kind} model; only models that answer one request "
                "with one response are compared in the shadow"
            )
    ours = {t.name: (t.datatype, t.shape) for t in champion.inputs}
    theirs = {t.name: (t.datatype, t.shape) for t in challenger.inputs}
    for name in sorted(ours.keys() | theirs.keys()):
        a, b = ours.get(name), theirs.get(name)
        if a is None or b is None or a[0] != b[0] or not _alike(a[1], b[1]):
            return (
                f"input {name!r} is {_shown(a)} in {champion.name} "
                f"{champion.version} and {_shown(b)} in {challenger.name} "
                f"{challenger.version}; both must take the same requests"
            )
    if not {t.name for t in champion.outputs} & {t.name for t in challenger.outputs}:
        return (
            f"{champion.name} answers {sorted(t.name for t in champion.outputs)} and "
            f"{challenger.name} {sorted(t.name for t in challenger.outputs)}; want an "
            "output of the same name"
        )
    return ""


def _alike(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return len(a) == len(b) and all(
        x == y or -1 in (x, y) for x, y in zip(a, b, strict=True)
    )


def _shown(tensor: tuple[str, tuple[int, ...]] | None) -> str:
    return "absent" if tensor is None else f"{tensor[0]}{list(tensor[1])}"
