"""Golden requests and those for embeddings: sent and timed as our own, answers as arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import structlog

from exporter import errors
from exporter.access.inventory import latest_version
from exporter.access.probe_base import Verdict, outcome_of
from exporter.own_requests import execution_evidence
from exporter.own_requests.answer_checks import joined_outputs, reply_fault
from exporter.own_requests.own_request import own_request
from exporter.own_requests.payload import InputSettings, make_payload
from exporter.own_requests.reach import own_inference
from exporter.own_requests.sending import send
from exporter.triton.protocol_types import ModelSpec
from exporter.triton.tensors import FLOATS, decode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from exporter.access.collector_base import Access
    from exporter.access.probe_base import Transport
    from exporter.features.golden.golden_checks import EmbeddingCheck
    from exporter.features.golden.golden_settings import GoldenSettings
    from exporter.own_requests.execution_evidence import Watched
    from exporter.triton.protocol_types import Array, InferReply, InferRequest
    from numerics.normal import Floats

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's answer: arrays or an error, and whether it came from a cache."""

    request_id: str
    seconds: float
    outputs: Mapping[str, Array] = field(default_factory=dict)
    error: errors.TritonError | None = None
    cached: bool = False

    def verdict(self, fault: str = "") -> Verdict:
        """The verdict on this request; bad if `fault` is set."""
        if self.error is not None:
            outcome, detail = outcome_of(self.error), str(self.error)
            return Verdict(outcome, self.seconds or None, self.request_id, detail)
        if fault:
            return Verdict("bad_output", self.seconds, self.request_id, fault[:1000])
        return Verdict("ok", self.seconds, self.request_id)


@dataclass(slots=True)
class Asker:
    """Sends requests to one model version; counts their `requests` and `seconds`."""

    access: Access
    spec: ModelSpec
    rng: np.random.Generator
    protocol: Transport = "grpc"
    timeout_seconds: float = 30.0
    linger_seconds: float = 0.0
    ignored_input: str | None = None
    requests: int = 0
    seconds: float = 0.0

    def ask(
        self,
        inputs: Mapping[str, Array],
        datatypes: Mapping[str, str],
    ) -> Answer:
        """Send one request; raises nothing of the server's making."""
        if self.ignored_input is not None:
            drawn = self._drawn(self.ignored_input, inputs)
            inputs = {**inputs, **drawn[0]}
            datatypes = {**datatypes, **drawn[1]}
        request_id = self.access.own.new_request_id("golden")
        request = own_request(self.spec, request_id, inputs, datatypes=datatypes)
        watched = execution_evidence.Watched.of(self.spec, self.access.board.current)
        started = self.access.clock()
        seconds: float | None = None
        outputs: dict[str, Array] = {}
        cached, error = False, None
        try:
            hits = self._hits(watched)
            started = self.access.clock()
            reply = self._send(request)
            # Without the reads of the statistics around it.
            seconds = reply.duration_seconds
            outputs = self._outputs(reply)
            cached = self._hits(watched) != hits
        except errors.TritonError as found:
            outputs, error = {}, found
        if seconds is None:
            seconds = self.access.clock() - started
        self.requests += 1
        self.seconds += seconds
        if error is None and seconds > self.timeout_seconds:
            error = errors.DeadlineError(
                f"the answer took {seconds:.3f} s; allowed are {self.timeout_seconds:g} s"
            )
        return Answer(request_id, seconds, outputs, error, cached)

    def _send(self, request: InferRequest) -> InferReply:
        with own_inference(self.access, self.spec, request) as sent:
            reply = send(
                self.access,
                self.spec,
                self.protocol,
                request,
                timeout_seconds=self.timeout_seconds + self.linger_seconds,
            )
            sent.reply = reply
        return reply

    def _outputs(self, reply: InferReply) -> dict[str, Array]:
        fault = reply_fault(self.spec, reply, frozenset())
        if fault:
            raise errors.ProtocolError(fault)
        if reply.streamed:
            return joined_outputs(self.spec, reply)
        return {output.name: decode(output) for output in reply.outputs}

    def _hits(self, watched: Watched) -> int:
        """Cache hits of the model and its steps; 0 where none has a response cache.

        A hit of another client in between counts as ours: an answer that may come from
        the cache proves nothing.
        """
        if not watched.cached:
            return 0
        return execution_evidence.read(
            self.access.grpc, watched, self.timeout_seconds
        ).hits(watched)

    def _drawn(
        self, name: str, inputs: Mapping[str, Array]
    ) -> tuple[dict[str, Array], dict[str, str]]:
        tensor = next((t for t in self.spec.inputs if t.name == name), None)
        if tensor is None:
            raise errors.UnsendableError(
                f"ignored_input is {name!r}; {self.spec.name} has "
                f"{sorted(t.name for t in self.spec.inputs)}"
            )
        shape = list(tensor.shape)
        if self.spec.max_batch_size > 0 and inputs:
            shape[0] = len(next(iter(inputs.values())))
        alone = ModelSpec(self.spec.name, self.spec.version, (tensor,), ())
        settings = InputSettings(
            shape=tuple(max(1, size) for size in shape),
            range=_FAR.get(tensor.datatype),
        )
        payload = make_payload(alone, {name: settings}, self.rng)
        return payload.inputs, payload.datatypes


# Without a range integers are 0 or 1, which would repeat at once.
_FAR = {
    kind: (0, 2 ** (bits - 1) - 1)
    for kind, bits in (
        ("INT8", 8), ("INT16", 16), ("INT32", 32), ("INT64", 53),
        ("UINT8", 8), ("UINT16", 16), ("UINT32", 32), ("UINT64", 53),
    )
}  # fmt: skip


_MOST_ROWS: Final = 64


class Embedder:
    """Asks embedding models; counts its `requests` and their `seconds`."""

    def __init__(
        self, access: Access, settings: GoldenSettings, rng: np.random.Generator
    ) -> None:
        self.requests = 0
        self.seconds = 0.0
        self._access = access
        self._settings = settings
        self._rng = rng
        self._failing: set[str] = set()

    def most_rows(self) -> int:
        """Rows to send at once: so many that each check takes one request, if it can be."""
        settings = self._settings
        sizes = (self._size(check.model) for check in settings.data.embeddings)
        rows = (max(1, size // 2) for size in sizes)
        return min(rows, default=settings.samples_per_request)

    def requests_for(self, rows: int) -> int:
        """Most requests that embed the answers to so many rows, and what is expected."""
        checks = self._settings.data.embeddings
        return sum(-(-2 * rows // self._size(check.model)) for check in checks)

    def vectors(self, check: EmbeddingCheck, texts: Sequence[bytes]) -> Floats:
        """Return the embeddings of the texts, one a row; equal ones are sent once.

        Raises:
            TritonError: the model is not ready, embeds no text or did not answer.
        """
        try:
            vectors = self._vectors(self._spec(check.model), texts)
        except errors.TritonError as error:
            if check.model not in self._failing:
                self._failing.add(check.model)
                log.warning(
                    "golden_embedding_failed",
                    model=check.model,
                    dataset=self._settings.dataset,
                    reason=str(error),
                )
            raise
        self._failing.discard(check.model)
        return vectors

    def _vectors(self, spec: ModelSpec, texts: Sequence[bytes]) -> Floats:
        found: dict[bytes, Floats] = {}
        different = list(dict.fromkeys(texts))
        size = _size(spec)
        for begin in range(0, len(different), size):
            some = different[begin : begin + size]
            found |= zip(some, self._asked(spec, some), strict=True)
        try:
            return np.stack([found[text] for text in texts])
        except ValueError as error:
            raise _fault(spec, f"its embeddings differ in size: {error}") from None

    def _size(self, model: str) -> int:
        found = self._found(model)
        return 1 if found is None else _size(found)

    def _found(self, model: str) -> ModelSpec | None:
        inventory = self._access.board.current
        version = latest_version(inventory, model)
        return None if version is None else inventory.models.get((model, version))

    def _spec(self, model: str) -> ModelSpec:
        spec = self._found(model)
        if spec is None:
            raise errors.InvalidRequestError(f"embedding model {model!r} is not ready")
        is_text = [tensor.datatype for tensor in spec.inputs] == ["BYTES"]
        floats = [tensor for tensor in spec.outputs if tensor.datatype in FLOATS]
        if not is_text or len(floats) != 1:
            raise _fault(spec, "want one input of BYTES and one float output")
        return spec

    def _asked(self, spec: ModelSpec, texts: Sequence[bytes]) -> Floats:
        settings = self._settings
        asker = Asker(
            self._access,
            spec,
            self._rng,
            settings.protocol,
            settings.timeout_seconds,
            settings.linger_seconds,
        )
        (tensor,) = spec.inputs
        array: Array = np.empty(len(texts), np.object_)
        array[:] = texts
        shaped = array.reshape(-1, *(1 for _ in tensor.shape[1:]))
        answer = asker.ask({tensor.name: shaped}, {tensor.name: "BYTES"})
        self.requests += asker.requests
        self.seconds += asker.seconds
        if answer.error is not None:
            raise _fault(spec, str(answer.error))
        vectors = next(
            (a for a in answer.outputs.values() if a.dtype.kind == "f"), np.empty(0)
        )
        if vectors.size == 0 or vectors.size % len(texts):
            raise _fault(spec, f"found {vectors.size} values for {len(texts)} texts")
        return vectors.reshape(len(texts), -1).astype(np.float64)


def _size(spec: ModelSpec) -> int:
    """Return how many texts a request may have."""
    return min(spec.max_batch_size, _MOST_ROWS) or 1


def _fault(spec: ModelSpec, reason: str) -> errors.ProtocolError:
    return errors.ProtocolError(f"embedding model {spec.name!r}: {reason}")
