"""Clients that send what a server has to refuse, beside the load of an experiment.

One connection and one request at a time, so that what it costs the server is bounded.
"""

from __future__ import annotations

import functools
import http.client
import itertools
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field

from exporter.triton.http_path import model_path
from loadtests.chaos.faults import needs
from loadtests.chaos.faults.fault import FaultFailedError, SustainedFault
from loadtests.chaos.primitives.process_refs import new_token

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from loadtests.chaos.site import Site
    from loadtests.mix import Body

_TIMEOUT_SECONDS: Final = 10.0
_BEHIND_SECONDS: Final = 1.0
_ERROR: Final = 400
_HEADER_LENGTH: Final = "Inference-Header-Content-Length"
_VARIANTS: Final = 24
_MEGABYTE: Final = 1 << 20
_CHUNK: Final = bytes(1 << 16)


@dataclass(frozen=True, slots=True)
class BadRequest:
    """One inference over HTTP: JSON and then the tensors' content."""

    header: bytes
    content_bytes: int
    content: Callable[[], Iterator[bytes]]
    """Builds the content for each send, so that a large one is not kept in memory."""


class BadRequests(SustainedFault):
    """A sender of bad requests to a model."""

    model: str
    """One that is loaded."""
    requests_per_second: float = Field(default=20.0, gt=0.0, le=1000.0)
    """Rate of bad requests; lower where the server takes longer to refuse one."""

    def prepare(self, site: Site) -> dict[str, Any]:
        """Return the address and content of the requests, and the sender's token."""
        needs.loaded(site, self.model)
        return {"token": new_token(), "http": site.http, **self.model_dump()}

    @classmethod
    def requests(cls, record: dict[str, Any]) -> Sequence[BadRequest]:
        """Return the requests to send in turns, at least one."""
        raise NotImplementedError

    @classmethod
    def work(cls, record: dict[str, Any], ready: Callable[[], None]) -> None:
        """Send them for ever; ready when the first is refused.

        Raises:
            FaultFailedError: there was no answer to the first, or it was taken for right.
        """
        path = f"{model_path(record['model'])}/infer"
        sender = _Sender(record["http"], path)
        requests = itertools.cycle(cls.requests(record))
        became = sender.send(next(requests))
        if became is not None:
            raise FaultFailedError(f"http://{record['http']}{path} {became}")
        ready()
        due = time.monotonic()
        for request in requests:
            now = time.monotonic()
            due = max(due + 1 / record["requests_per_second"], now - _BEHIND_SECONDS)
            time.sleep(max(due - now, 0.0))
            sender.send(request)


class CorruptInputs(BadRequests):
    """Invalid requests: a tensor is cut short, unknown, or of another dtype."""

    kind: Literal["corrupt_inputs"] = "corrupt_inputs"
    seed: int = 0
    """Seed of the defects of each request."""

    @classmethod
    def requests(cls, record: dict[str, Any]) -> Sequence[BadRequest]:
        """Make them from the model's own signature."""
        import numpy as np  # noqa: PLC0415 - not needed for undo

        from exporter.own_requests.payload import make_payload  # noqa: PLC0415
        from loadtests.payloads.bodies import Row, body_of  # noqa: PLC0415
        from loadtests.payloads.corrupt import corrupted  # noqa: PLC0415

        rng = np.random.default_rng(record["seed"])
        spec = _specification(record)
        good = (
            body_of(spec, Row(make_payload(spec, {}, rng).inputs), "http")
            for _ in range(_VARIANTS)
        )
        return [_request(corrupted(body, rng)) for body in good]


class OversizedInputs(BadRequests):
    """Oversized requests of one client, which use the server's threads and memory.

    One at a time, so that the server holds no more than one of them. Their shape has a
    dimension too many, so that a model of any size refuses them.
    """

    kind: Literal["oversized_inputs"] = "oversized_inputs"
    megabytes: int = Field(default=32, ge=1, le=512)
    """Size of each, in units of 2**20 bytes."""
    requests_per_second: float = Field(default=2.0, gt=0.0, le=100.0)
    """Rate of bad requests; lower where the server takes longer to refuse one."""

    @classmethod
    def requests(cls, record: dict[str, Any]) -> Sequence[BadRequest]:
        """Return one of zeros in the place of the model's first input."""
        tensor = _specification(record).inputs[0]
        size = record["megabytes"] * _MEGABYTE
        wrong = {
            "name": tensor.name,
            "datatype": tensor.datatype,
            # -1 stands for any size, so it is the number of dimensions that is wrong.
            "shape": [1] * len(tensor.shape) + [size // _width(tensor.datatype)],
            "parameters": {"binary_data_size": size},
        }
        header = json.dumps({"inputs": [wrong]}).encode()
        return [BadRequest(header, size, functools.partial(_zeros, size))]


class _Sender:
    """One connection, reopened when it has ended."""

    def __init__(self, address: str, path: str) -> None:
        self._connection = http.client.HTTPConnection(address, timeout=_TIMEOUT_SECONDS)
        self._path = path

    def send(self, request: BadRequest) -> str | None:
        """Send it; None where it is refused, as it has to be."""
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Length": str(len(request.header) + request.content_bytes),
            _HEADER_LENGTH: str(len(request.header)),
        }
        body = itertools.chain([request.header], request.content())
        try:
            self._connection.request("POST", self._path, body, headers)
            answer = self._connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            return "did not answer"
        if answer.status >= _ERROR:
            return None
        return "answered a bad request as if it were right"


def _specification(record: dict[str, Any]) -> Any:
    """The model's signature, as `loadtests.payloads.metadata` reads it."""
    # It imports gRPC, which is not needed for undo.
    from loadtests.payloads.metadata import model_spec  # noqa: PLC0415
    from loadtests.target import Target  # noqa: PLC0415

    return model_spec(Target("http", record["http"]), record["model"])


def _request(body: Body) -> BadRequest:
    header, content = body.data[: body.header_bytes], body.data[body.header_bytes :]
    return BadRequest(header, len(content), lambda: iter([content]))


def _width(datatype: str) -> int:
    """Bytes of an element; an empty text is its length alone, of four bytes."""
    from exporter.triton.tensors import array_dtype  # noqa: PLC0415 - numpy

    return 4 if datatype == "BYTES" else int(array_dtype(datatype).itemsize)


def _zeros(size: int) -> Iterator[bytes]:
    while size > 0:
        yield _CHUNK[:size]
        size -= len(_CHUNK)
