"""Sends the same request to champion and challenger, each from its own thread.

The two never wait for one another: a challenger that hangs or crashes costs pairs, and
neither a champion's measurement nor anything else.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from exporter import errors
from exporter.features.comparison.answer_pairs import Answered
from exporter.own_requests.answer_checks import reply_fault
from exporter.own_requests.own_request import own_request
from exporter.own_requests.reach import own_inference

if TYPE_CHECKING:
    from collections.abc import Callable

    from exporter.access.collector_base import Access
    from exporter.features.comparison.comparison_inputs import Input
    from exporter.triton.protocol_types import ModelSpec

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

    def offer(self, side: Side, inputs: Input) -> bool:
        """Start a request at once; False while the thread is busy with an earlier one."""
        with self._wake:
            if self._busy or self._ending:
                return False
            self._job, self._busy = (side, inputs), True
            self._began = time.monotonic()
            self._wake.notify()
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
