"""Sends requests that a server has to refuse, beside the load of an experiment.

One connection and one request at a time, so that what it costs the server is bounded.
What became of them is counted in a file, since the sender is a process of its own.
"""

from __future__ import annotations

import http.client
import itertools
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field

from exporter.triton.http_path import model_path
from loadtests.chaos.faults import needs
from loadtests.chaos.faults.base import Fault, FaultFailedError
from loadtests.chaos.primitives import agents
from loadtests.chaos.primitives.processes import new_token

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from loadtests.chaos.site import Site

_TIMEOUT_SECONDS: Final = 10.0
_TELL_SECONDS: Final = 0.2
_BEHIND_SECONDS: Final = 1.0
_ERROR: Final = 400
_HEADER_LENGTH: Final = "Inference-Header-Content-Length"
Outcome = Literal["refused", "accepted", "unanswered"]


@dataclass(frozen=True, slots=True)
class BadRequest:
    """One inference over HTTP: JSON and then the tensors' content."""

    header: bytes
    content_bytes: int
    content: Callable[[], Iterator[bytes]]
    """Made anew for each sending, so that a large one need not be held."""

    def body(self) -> Iterable[bytes]:
        """All that is sent."""
        return itertools.chain([self.header], self.content())


class BadRequests(Fault):
    """What faults have in common that send bad requests to a model.

    The module of each has the `work` of an agent, which ends in `send_forever`.
    """

    model: str
    """One that is loaded."""
    requests_per_second: float = Field(default=20.0, gt=0.0, le=1000.0)
    """How many; fewer where the server takes longer to refuse one."""
    longest_seconds: float = Field(default=600.0, gt=0.0, le=86_400.0)
    """After which they end by themselves."""

    def require(self, site: Site) -> None:
        """A server that answers, with the model loaded."""
        needs.loaded(site, self.model)

    def prepare(self, site: Site) -> dict[str, Any]:
        """Where to send, and the sender's token and file."""
        self.require(site)
        token = new_token()
        return {
            "token": token,
            "http": site.http,
            "tally": str(Path(tempfile.gettempdir()) / f"{token}.tally"),
            **self.model_dump(),
        }

    def inject(self, record: dict[str, Any]) -> None:
        """Send them; the first is answered when this returns."""
        module, longest_seconds = type(self).__module__, self.longest_seconds
        agents.start(record["token"], module, record, longest_seconds=longest_seconds)

    def missing(self, record: dict[str, Any]) -> list[str]:
        """Return whether nothing sends them."""
        at_work = agents.running(record["token"])
        return [] if at_work else ["what sends the bad requests has ended"]

    @classmethod
    def revert(cls, record: dict[str, Any]) -> None:
        """End what sends them."""
        agents.stop(record["token"])
        for file in _files(record):
            file.unlink(missing_ok=True)

    @classmethod
    def residue(cls, record: dict[str, Any]) -> list[str]:
        """Return what sends them, and its file."""
        return agents.left(record["token"]) + [
            f"file {file} is left" for file in _files(record) if file.exists()
        ]


def tally_of(record: dict[str, Any]) -> dict[Outcome, int]:
    """Return how many were refused, accepted, and left without an answer so far."""
    found: dict[Outcome, int] = {"refused": 0, "accepted": 0, "unanswered": 0}
    try:
        found |= json.loads(Path(record["tally"]).read_text("utf-8"))
    except (OSError, ValueError):
        return found
    return found


def send_forever(
    settings: dict[str, Any], requests: Sequence[BadRequest], ready: Callable[[], None]
) -> None:
    """Send them in turns, `requests_per_second`; ready when the first is answered.

    Args:
        settings: of the fault's record.
        requests: at least one.
        ready: of the agent.

    Raises:
        FaultFailedError: there was no answer to the first.
    """
    path = f"{model_path(settings['model'])}/infer"
    sender = _Sender(settings["http"], path)
    tally: dict[Outcome, int] = {"refused": 0, "accepted": 0, "unanswered": 0}
    due, told = time.monotonic(), 0.0
    for request in itertools.cycle(requests):
        outcome = sender.send(request)
        tally[outcome] += 1
        if sum(tally.values()) == 1:
            if outcome == "unanswered":
                raise FaultFailedError(
                    f"http://{settings['http']}{path} did not answer"
                )
            ready()
        now = time.monotonic()
        if now - told > _TELL_SECONDS:
            _tell(settings, tally)
            told = now
        due = max(due + 1 / settings["requests_per_second"], now - _BEHIND_SECONDS)
        time.sleep(max(due - now, 0.0))


class _Sender:
    """One connection, opened anew when it has ended."""

    def __init__(self, address: str, path: str) -> None:
        self._address, self._path = address, path
        self._connection: http.client.HTTPConnection | None = None

    def send(self, request: BadRequest) -> Outcome:
        if self._connection is None:
            self._connection = http.client.HTTPConnection(
                self._address, timeout=_TIMEOUT_SECONDS
            )
        try:
            status = self._status(self._connection, request)
        except (OSError, http.client.HTTPException):
            self._connection.close()
            self._connection = None
            return "unanswered"
        return "refused" if status >= _ERROR else "accepted"

    def _status(
        self, connection: http.client.HTTPConnection, request: BadRequest
    ) -> int:
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Length": str(len(request.header) + request.content_bytes),
            _HEADER_LENGTH: str(len(request.header)),
        }
        connection.request("POST", self._path, request.body(), headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status


def specification(settings: dict[str, Any]) -> Any:
    """The model's signature, as `loadtests.payloads.metadata` reads it."""
    # It brings gRPC, which whoever undoes a fault does not need.
    from loadtests.payloads.metadata import model_spec  # noqa: PLC0415
    from loadtests.target import Target  # noqa: PLC0415

    return model_spec(Target("http", settings["http"]), settings["model"])


def _tell(settings: dict[str, Any], tally: dict[Outcome, int]) -> None:
    file, draft = _files(settings)
    draft.write_text(json.dumps(tally), "utf-8")
    draft.replace(file)


def _files(record: dict[str, Any]) -> tuple[Path, Path]:
    file = Path(record["tally"])
    return file, file.with_suffix(".draft")
