"""The exception tree: every error this project raises on purpose.

TritonwatchError
├── ConfigError            the file: unknown key, wrong value, unreadable      (exit 2)
├── EmbeddedTritonError    the embedded server is missing, or did not start
├── GoldenDataError        a golden file is not what it should be
├── ListenError            an address cannot be bound                          (exit 2)
├── MirrorBodyError        what was sent as an inference is none
│   └── MirrorUnsupportedError  it may be one, of a kind that is not read
├── PartialResultError     a collector could read only a part
├── SourceError            a source of samples, such as a file, cannot be read
│   └── TritonError          a request to Triton has no usable answer
│       ├── UnavailableError     no connection, or the server says so
│       │   ├── UnreachableError   no connection: the request was never sent
│       │   └── RejectedError      the queue of a model had no room for the request
│       ├── BusyError            the server answered: too many requests now
│       ├── DeniedError          refused before any model: a header or credentials lack
│       ├── DeadlineError        no answer in time
│       ├── NotSentError         this process did not run in time to send the request
│       ├── ModelError           the server answered: this request failed
│       ├── InvalidRequestError  the server answered: this request is wrong
│       │   ├── UnsupportedError   it has no such call
│       │   └── UnsendableError    our settings do not fit the model: nothing was sent
│       └── ProtocolError        the answer is not what the protocol allows
├── TraceBodyError         what was sent as traces is none
└── UnusableFileError      a file is not a regular one, or too large

A collector raises SourceError or one of its subclasses where its source fails: the failure
is counted and logged once. Any other exception is a defect of the collector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from exporter.samples import AnySample


_MOST_CHARACTERS: Final = 1_000


class TritonwatchError(Exception):
    """Base of every error raised on purpose."""


class ConfigError(TritonwatchError):
    """The configuration is wrong; carries every problem found, not just the first.

    `source` is the file, empty if the command line is.
    """

    def __init__(self, source: str, problems: Sequence[str]) -> None:
        self.source = source
        self.problems = tuple(problems)
        where = f"{source}: " if source else ""
        super().__init__("\n".join(f"{where}{problem}" for problem in self.problems))


class EmbeddedTritonError(TritonwatchError):
    """The embedded Triton is not installed, or ended or stayed unready at start."""


class GoldenDataError(TritonwatchError):
    """A golden file cannot be used; names the file, and the field and row if it is one.

    Rows count from 0, a header not among them.
    """

    def __init__(
        self, file: str, reason: str, *, name: str | None = None, row: int | None = None
    ) -> None:
        self.file = file
        self.field = name
        self.row = row
        where = "".join(
            [
                f"{file}: ",
                "" if row is None else f"row {row}: ",
                "" if name is None else f"{name!r}: ",
            ]
        )
        super().__init__(f"{where}{reason}")


class UnusableFileError(TritonwatchError):
    """A file that is not a regular one, or too large."""


class ListenError(TritonwatchError):
    """A listening address cannot be bound."""

    def __init__(
        self,
        address: str,
        reason: str,
        remedy: str = "choose another address under `listen` in the config",
    ) -> None:
        self.address = address
        self.reason = reason
        super().__init__(f"cannot listen on {address}: {reason}; {remedy}")


class TraceBodyError(TritonwatchError):
    """A body sent to the trace tap violates its format."""


class MirrorBodyError(TritonwatchError):
    """A body sent to the mirror tap is not an inference request or response."""


class MirrorUnsupportedError(MirrorBodyError):
    """A mirrored inference of an unsupported kind, or with an incomplete description."""


class PartialResultError(TritonwatchError):
    """A collector could read only a part; `samples` has the values it could read."""

    def __init__(self, samples: Sequence[AnySample], cause: SourceError) -> None:
        self.samples = samples
        super().__init__(str(cause))


class SourceError(TritonwatchError):
    """A source of samples cannot be read now.

    The message may contain a server's text, so it is cut to 1,000 characters, and what
    cannot be written as UTF-8 is replaced.
    """

    def __init__(self, message: str) -> None:
        most = _MOST_CHARACTERS
        text = message if len(message) <= most else f"{message[: most - 1]}…"
        super().__init__(text.encode("utf-8", "replace").decode())


class TritonError(SourceError):
    """A request to Triton has no usable answer."""


class UnavailableError(TritonError):
    """No connection to the server, or the server reports that it is unavailable."""


class UnreachableError(UnavailableError):
    """No connection to the server, so that the request was never sent."""


class RejectedError(UnavailableError):
    """The queue of a model had no room for the request, or dropped it after its timeout."""


_REJECTIONS: Final = ("Exceeds maximum queue size", "Request timeout expired")
"""Parts of Triton's errors by `max_queue_size`, and by a queue's timeout with `REJECT`."""


def unavailable(text: str) -> UnavailableError:
    """Return the error of a server that answered, with this text, that it is unavailable."""
    is_rejected = any(rejection in text for rejection in _REJECTIONS)
    return (RejectedError if is_rejected else UnavailableError)(text)


class BusyError(TritonError):
    """The server refused the request because it has too many, and did not begin it."""


class DeniedError(TritonError):
    """The server, or a proxy before it, asks for a header or credentials: no model was asked."""

    def __init__(self, message: str) -> None:
        super().__init__(f"{message}; set the header under target.headers")


class DeadlineError(TritonError):
    """The server gave no answer in time."""


class ModelError(TritonError):
    """The server answered that the request failed inside it."""


class InvalidRequestError(TritonError):
    """The server answered that the request does not fit: unknown model, wrong tensor."""


class NotSentError(TritonError):
    """A request was never sent: this process had no thread for it before its timeout."""


class UnsupportedError(InvalidRequestError):
    """The server answered that it has no such call: one of Triton's own, of another."""


class UnsendableError(InvalidRequestError):
    """A request was never sent: our settings do not fit the model, or the protocol cannot carry it."""


class ProtocolError(TritonError):
    """The server's answer breaks the protocol: garbage, half a message, wrong size."""
