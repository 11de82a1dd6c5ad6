"""Sends given tensors as an own request, times it, and returns the answer as arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from exporter import errors
from exporter.access.probe_base import Verdict, outcome_of
from exporter.own_requests import execution_evidence
from exporter.own_requests.answer_checks import joined_outputs, reply_fault
from exporter.own_requests.own_request import own_request
from exporter.own_requests.payload import InputSettings, make_payload
from exporter.own_requests.reach import own_inference
from exporter.own_requests.sending import send
from exporter.triton.protocol_types import ModelSpec
from exporter.triton.tensors import array_dtype, decode

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from exporter.access.collector_base import Access
    from exporter.access.probe_base import Transport
    from exporter.own_requests.execution_evidence import Watched
    from exporter.triton.protocol_types import Array, InferReply, InferRequest

_EXACT_BITS: Final = 53


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's answer: arrays or an error, and whether it may have come from a cache."""

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
    purpose: str = "golden"
    """Part of the ids of its requests."""
    requests: int = 0
    seconds: float = 0.0

    def ask(
        self,
        inputs: Mapping[str, Array],
        datatypes: Mapping[str, str],
    ) -> Answer:
        """Send one request; raises no TritonError."""
        request_id = self.access.own.new_request_id(self.purpose)
        try:
            request = self._request(request_id, inputs, datatypes)
        except errors.UnsendableError as unsendable:
            return Answer(request_id, 0.0, error=unsendable)
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
            cached = hits is None or self._hits(watched) != hits
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

    def _request(
        self, request_id: str, inputs: Mapping[str, Array], datatypes: Mapping[str, str]
    ) -> InferRequest:
        if self.ignored_input is not None:
            drawn, drawn_types = self._drawn(self.ignored_input, inputs)
            inputs, datatypes = {**inputs, **drawn}, {**datatypes, **drawn_types}
        return own_request(self.spec, request_id, inputs, datatypes=datatypes)

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

    def _hits(self, watched: Watched) -> int | None:
        """Cache hits of the model and its steps; 0 where none has a response cache.

        None if they cannot be read. A hit of another client in between counts as ours:
        an answer that may come from the cache proves nothing.
        """
        if not watched.cached:
            return 0
        try:
            return execution_evidence.read(
                self.access.grpc, watched, self.timeout_seconds
            ).hits(watched)
        except errors.TritonError:
            return None

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
        dtype = array_dtype(tensor.datatype)
        # Without a range integers are 0 or 1, which would repeat at once.
        far = 2 ** (min(8 * dtype.itemsize, _EXACT_BITS) - 1) - 1
        alone = ModelSpec(self.spec.name, self.spec.version, (tensor,), ())
        settings = InputSettings(
            shape=tuple(max(1, size) for size in shape),
            range=(0, far) if dtype.kind in "iu" else None,
        )
        payload = make_payload(alone, {name: settings}, self.rng)
        return payload.inputs, payload.datatypes
