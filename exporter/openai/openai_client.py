"""An OpenAI-compatible server, by the methods that discovery and probes use of a server.

Each model that it lists is shown as a decoupled model with the inputs `prompt` and
`max_tokens` and the output `text`. Its version is "".
"""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from urllib3.exceptions import HTTPError

from exporter import errors
from exporter.openai.completions import (
    MODELS,
    PATHS,
    read_chunk,
    request_body,
)
from exporter.triton.event_stream import EVENTS, EventStream, json_object
from exporter.triton.http import status_error
from exporter.triton.patience import sent_at
from exporter.triton.protocol_types import (
    IndexEntry,
    InferReply,
    ModelSpec,
    OutputTensor,
    ServerInfo,
    TensorSpec,
    Tokens,
)
from exporter.triton.streamed_reply import StreamedReply
from exporter.triton.tensors import encode

if TYPE_CHECKING:
    import ssl

    import urllib3

    from exporter.openai.completions import Api
    from exporter.triton.http import HttpClient
    from exporter.triton.protocol_types import InferRequest

MAX_EVENT_BYTES: Final = 1 << 20
"""Limit of one event: those of a short answer have some hundred bytes."""
MAX_MODELS: Final = 1_000
_INPUTS: Final = (
    TensorSpec("prompt", "BYTES", (1,)),
    TensorSpec("max_tokens", "INT32", (1,), optional=True),
)
_OUTPUTS: Final = (TensorSpec("text", "BYTES", (1,)),)
_OK: Final = 200
_ABSENT: Final = frozenset({404, 405, 501})
_OF_PROXIES: Final = frozenset({502, 504})
"""Statuses by which a proxy reports that the server does not answer."""
_TOO_MANY: Final = 429
_CHUNK_BYTES: Final = 1 << 16
_MOST_CHARACTERS: Final = 1_000


class OpenAiClient:
    """One OpenAI-compatible server. Thread-safe; every call has a total deadline."""

    protocol: Final = "http"

    def __init__(self, http: HttpClient, api: Api, max_tokens: int) -> None:
        self.address = http.address
        self._http = http
        self._api: Api = api
        self._max_tokens = max_tokens
        self._ready = False

    def renew(self, tls: ssl.SSLContext) -> None:
        """Use another context from the next request on, on new connections."""
        self._http.renew(tls)

    def close(self) -> None:
        """Close idle connections; the next request opens a new one."""
        self._http.close()

    def live(self, *, timeout_seconds: float) -> bool:
        """Return whether the server answers HTTP, and note whether it is ready.

        `GET /health` shows both; without that path, the list of models does.
        """
        status, body = self._http.answer("/health", timeout_seconds=timeout_seconds)
        if status in _ABSENT:
            status, body = self._http.answer(MODELS, timeout_seconds=timeout_seconds)
        self._ready = status == _OK
        if status in _OF_PROXIES:
            raise status_error(status, body)
        return True

    def ready_later(
        self, model: str, version: str, *, timeout_seconds: float
    ) -> Future[bool]:
        """Return what the latest `live` found; models have no readiness of their own."""
        del version, timeout_seconds
        answer: Future[bool] = Future()
        if model:
            answer.set_exception(errors.UnsupportedError("models are not asked"))
        else:
            answer.set_result(self._ready)
        return answer

    def ready_answer(self, call: Future[bool]) -> bool:
        """The answer of a `ready_later`."""
        return call.result()

    def server_info(self, *, timeout_seconds: float) -> ServerInfo:
        """The owner of its models as its name, and its version where it reports one."""
        owners = (m.get("owned_by") for m in self._listed(timeout_seconds))
        name = next((o for o in owners if isinstance(o, str) and o), "openai")
        version = self._version(timeout_seconds)
        return ServerInfo(name[:_MOST_CHARACTERS], version[:_MOST_CHARACTERS])

    def _version(self, timeout_seconds: float) -> str:
        # No part of the protocol: vLLM has it.
        with contextlib.suppress(errors.TritonError, ValueError):
            body = self._http.get("/version", timeout_seconds=timeout_seconds)
            version = json_object(body).get("version")
            return version if isinstance(version, str) else ""
        return ""

    def repository_index(self, *, timeout_seconds: float) -> tuple[IndexEntry, ...]:
        """Every model that the server lists."""
        names = (m.get("id") for m in self._listed(timeout_seconds))
        known = (
            n for n in names if isinstance(n, str) and 0 < len(n) <= _MOST_CHARACTERS
        )
        return tuple(IndexEntry(name, "", "READY") for name in dict.fromkeys(known))

    def _listed(self, timeout_seconds: float) -> list[dict[str, Any]]:
        status, body = self._http.answer(MODELS, timeout_seconds=timeout_seconds)
        if status != _OK:
            raise _refused(status, body)
        try:
            found = json_object(body).get("data")
        except ValueError as error:
            raise errors.ProtocolError(f"{MODELS}: {error}") from None
        if not isinstance(found, list) or len(found) > MAX_MODELS:
            raise errors.ProtocolError(
                f"{MODELS}: want a list `data` of at most {MAX_MODELS} models"
            )
        return [model for model in found if isinstance(model, dict)]

    def model_spec(
        self, name: str, version: str, *, timeout_seconds: float
    ) -> ModelSpec:
        """The signature that every model has; asks nothing."""
        del timeout_seconds
        return ModelSpec(
            name, version, _INPUTS, _OUTPUTS, decoupled=True, backend="openai"
        )

    def infer_stream(
        self, request: InferRequest, *, timeout_seconds: float
    ) -> InferReply:
        """One completion, streamed; each event with content is a response.

        Raises:
            TritonError: as for every other call; BusyError for status 429.
        """
        body = self._body(request)
        headers = {
            "Content-Type": "application/json",
            "Accept": EVENTS,
            # vLLM has it in its log.
            "X-Request-Id": request.request_id,
            # KServe's logger makes it the id of its events.
            "Ce-Id": request.request_id,
            **request.headers,
        }
        with self._http.opened(
            "POST", PATHS[self._api], body, headers, timeout_seconds
        ) as response:
            answer = _Answer(sent_at(response))
            if response.status != _OK:
                raise _refused(response.status, response.read(_CHUNK_BYTES))
            found = response.headers.get("content-type", "")
            if not found.startswith(EVENTS):
                raise errors.ProtocolError(f"the answer is {found!r}; want {EVENTS}")
            while answer.ended_at is None:
                data = response.read1(_CHUNK_BYTES)
                if not data:
                    raise errors.ProtocolError("the stream ended without [DONE]")
                answer.feed(data, time.perf_counter())
            _let_end(response)
        return answer.reply(answer.ended_at)

    def _body(self, request: InferRequest) -> bytes:
        given: dict[str, Any] = {
            name: np.asarray(array).ravel()[0] for name, array in request.inputs.items()
        }
        prompt = given.get("prompt", "")
        if isinstance(prompt, bytes):
            prompt = prompt.decode("utf-8", "replace")
        limit = int(given.get("max_tokens", self._max_tokens))
        parameters = {"temperature": 0, **request.parameters}
        return request_body(self._api, request.model, str(prompt), limit, parameters)


class _Answer:
    """One streamed answer as it comes."""

    def __init__(self, started: float) -> None:
        self.ended_at: float | None = None
        self._events = EventStream(MAX_EVENT_BYTES)
        self._reply = StreamedReply(started)
        self._tokens = Tokens()
        self._is_empty = True

    def feed(self, data: bytes, now: float) -> None:
        try:
            chunks = [read_chunk(event) for event in self._events.feed(data)]
        except ValueError as error:
            raise errors.ProtocolError(f"an event of the stream: {error}") from None
        for chunk in chunks:
            if chunk.error is not None:
                raise errors.ModelError(chunk.error)
            if chunk.ends:
                self.ended_at = now
                return
            if chunk.output_tokens is not None:
                self._tokens = Tokens(chunk.input_tokens, chunk.output_tokens)
            if chunk.is_content:
                self._is_empty = False
                self._reply.add((_text_tensor(chunk.text),), now)

    def reply(self, now: float) -> InferReply:
        """Return the whole answer, which ended at `now`.

        Raises:
            ProtocolError: it has no content, and no tokens that would have none.
        """
        if self._is_empty and not self._tokens.output:
            raise errors.ProtocolError("the stream ended without content")
        return replace(self._reply.ended(now), tokens=self._tokens)


def _text_tensor(text: str) -> OutputTensor:
    # Half of a surrogate pair cannot be encoded.
    content = np.array([text.encode("utf-8", "replace")], object)
    return OutputTensor("text", "BYTES", (1,), encode(content, "BYTES"))


def _let_end(response: urllib3.BaseHTTPResponse) -> None:
    """Read the end of an answer after its last event, so that its connection stays usable."""
    with contextlib.suppress(HTTPError):
        if not response.read1(_CHUNK_BYTES):
            return
    response.close()


def _refused(status: int, body: bytes) -> errors.TritonError:
    error = status_error(status, body)
    if status == _TOO_MANY:
        return errors.BusyError(str(error))
    return error
