"""Routes that collectors offer to the taps: a path, and a handler of its bodies."""

from __future__ import annotations

from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterable, Mapping, Sequence

Outcome = Literal[
    "accepted",
    "sampled_out",
    "unwanted",
    "unknown_model",
    "own",
    "malformed",
    "too_large",
    "unsupported",
    "timeout",
    "overloaded",
    "aborted",
    "too_large_or_aborted",
    "cross_site",
]


@dataclass(frozen=True, slots=True)
class TapHead:
    """A request without its body. Header names are in lower case."""

    path: str
    headers: Iterable[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class TapRequest:
    """One body; a route gets it decoded. Header names are in lower case."""

    body: bytes
    headers: Mapping[str, str]
    path: str = ""
    sender: str = ""
    """The address or network that quotas count by."""

    @property
    def media_type(self) -> str:
        """Media type of the body, without parameters, in lower case."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


@dataclass(frozen=True, slots=True)
class TapAnswer:
    """The answer to the sender."""

    outcome: Outcome
    status: HTTPStatus = HTTPStatus.OK
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TapRoute:
    """One path of the tap, or all that fit `pattern`, which `path` then describes.

    `answer` is called in a worker thread of the source's own with a body of at most
    `max_body_bytes`, after decoding; it raises nothing. `busy_answer` is
    returned when that takes longer than `answer_seconds`; the body is still processed if
    its turn comes in time. `admit` is asked before a body is read, in the event loop, so
    it has to be quick; the sender gets its answer instead. `too_large` is called for each body refused for its
    size; it has to be quick, too. A route of `control` changes what is reported: it takes
    JSON alone, sent to an address or a name of ours. (A proxy that mirrors requests keeps
    the name of production.)
    """

    path: str
    source: str
    max_body_bytes: int
    answer: Callable[[TapRequest], TapAnswer]
    busy_answer: TapAnswer
    pattern: re.Pattern[str] | None = None
    admit: Callable[[TapHead], TapAnswer | None] | None = None
    answer_seconds: float | None = None
    too_large: Callable[[], None] | None = None
    control: bool = False


@dataclass(frozen=True, slots=True)
class MessageRoute:
    """Handlers of the gRPC tap's messages.

    `admit` is called first, in the event loop, so it has to be quick: it returns the outcome
    of a message that is refused unread, or None. `process` is called in a worker thread and raises
    nothing. Both add a reason for the sender, or "".
    """

    source: str
    max_message_bytes: int
    admit: Callable[[bytes], tuple[Outcome | None, str]]
    process: Callable[[bytes], tuple[Outcome, str]]


@runtime_checkable
class Tapped(Protocol):
    """A collector that receives its data from the taps."""

    def routes(self) -> Sequence[TapRoute | MessageRoute]:
        """The paths that it answers, and where it takes gRPC messages."""
        ...


def refusal(outcome: Outcome, status: HTTPStatus, message: str) -> TapAnswer:
    """An answer in words. The connection ends: the rest of the body is not wanted."""
    return TapAnswer(
        outcome,
        status,
        f"{message}\n".encode(),
        {"content-type": "text/plain; charset=utf-8", "connection": "close"},
    )
