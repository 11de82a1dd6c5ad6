"""What a collector offers to the taps: a path, and what becomes of a body sent to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Outcome = Literal[
    "accepted",
    "malformed",
    "too_large",
    "unsupported",
    "timeout",
    "overloaded",
    "aborted",
]


@dataclass(frozen=True, slots=True)
class TapRequest:
    """One body as it was sent, and decoded. Header names are in lower case."""

    body: bytes
    raw: bytes
    headers: Mapping[str, str]

    @property
    def media_type(self) -> str:
        """Of the body, without parameters, in lower case."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


@dataclass(frozen=True, slots=True)
class TapAnswer:
    """What the sender is told."""

    outcome: Outcome
    status: HTTPStatus = HTTPStatus.OK
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TapRoute:
    """One path of the tap.

    `answer` is called in a worker thread with a body of at most `max_body_bytes`, after
    decoding; it raises nothing. `busy_answer` is what the sender is told when that takes
    too long: the body will still be worked on.
    """

    path: str
    source: str
    max_body_bytes: int
    answer: Callable[[TapRequest], TapAnswer]
    busy_answer: TapAnswer


@runtime_checkable
class Tapped(Protocol):
    """A collector that is sent what it collects."""

    def routes(self) -> Sequence[TapRoute]:
        """The paths it answers."""
        ...


def refusal(outcome: Outcome, status: HTTPStatus, message: str) -> TapAnswer:
    """An answer in words. The connection ends: the rest of the body is not wanted."""
    return TapAnswer(
        outcome,
        status,
        f"{message}\n".encode(),
        {"content-type": "text/plain; charset=utf-8", "connection": "close"},
    )
