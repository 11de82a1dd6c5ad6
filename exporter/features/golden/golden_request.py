"""One golden request: sent and timed as our own, with its answer as arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from exporter import errors
from exporter.access.probe_base import Verdict, outcome_of
from exporter.own_requests import execution_evidence
from exporter.own_requests.answer_checks import joined_outputs, reply_fault
from exporter.own_requests.own_request import own_request
from exporter.own_requests.payload import InputSettings, make_payload
from exporter.own_requests.reach import own_inference
from exporter.own_requests.sending import send
from exporter.triton.protocol_types import ModelSpec
from exporter.triton.tensors import decode

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from exporter.access.collector_base import Access
    from exporter.access.probe_base import Transport
    from exporter.catalogue.probe_outcomes import Outcome
    from exporter.own_requests.execution_evidence import Watched
    from exporter.triton.protocol_types import Array, InferRequest


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's answer: arrays or an error, and whether it came from a cache."""

    request_id: str
    seconds: float
    outputs: Mapping[str, Array] = field(default_factory=dict)
    error: errors.TritonError | None = None
    cached: bool = False

    @property
    def outcome(self) -> Outcome:
        """Outcome of a probe's verdict."""
        return "ok" if self.error is None else outcome_of(self.error)

    def verdict(self, fault: str = "") -> Verdict:
        """The verdict on this request; bad if `fault` is set."""
        if self.error is not None:
            return Verdict(
                self.outcome, self.seconds or None, self.request_id, str(self.error)
            )
        if fault:
            return Verdict("bad_output", self.seconds, self.request_id, fault[:1000])
        return Verdict("ok", self.seconds, self.request_id)


class Asker:
    """Sends requests to one model version; counts their `requests` and `seconds`."""

    def __init__(
        self,
        access: Access,
        spec: ModelSpec,
        *,
        protocol: Transport,
        timeout_seconds: float,
        linger_seconds: float,
        ignored_input: str | None,
        rng: np.random.Generator,
    ) -> None:
        self.spec = spec
        self.requests = 0
        self.seconds = 0.0
        self._access = access
        self._protocol: Transport = protocol
        self._timeout = timeout_seconds
        self._linger = linger_seconds
        self._ignored = ignored_input
        self._rng = rng

    def ask(
        self,
        inputs: Mapping[str, Array],
        datatypes: Mapping[str, str],
    ) -> Answer:
        """Send one request; raises nothing of the server's making."""
        if self._ignored is not None:
            drawn = self._drawn(self._ignored, inputs)
            inputs = {**inputs, **drawn[0]}
            datatypes = {**datatypes, **drawn[1]}
        request_id = self._access.own.new_request_id("golden")
        request = own_request(self.spec, request_id, inputs, datatypes=datatypes)
        watched = execution_evidence.Watched.of(self.spec, self._access.board.current)
        started = self._access.clock()
        try:
            hits = self._hits(watched)
            outputs = self._send(request)
            cached = self._hits(watched) != hits
            error = None
        except errors.TritonError as found:
            outputs, cached, error = {}, False, found
        seconds = self._access.clock() - started
        self.requests += 1
        self.seconds += seconds
        if error is None and seconds > self._timeout:
            error = errors.DeadlineError(
                f"the answer took {seconds:.3f} s; allowed are {self._timeout:g} s"
            )
        return Answer(request_id, seconds, outputs, error, cached)

    def _send(self, request: InferRequest) -> dict[str, Array]:
        with own_inference(self._access, self.spec, request) as sent:
            reply = send(
                self._access,
                self.spec,
                self._protocol,
                request,
                timeout_seconds=self._timeout + self._linger,
            )
            sent.reply = reply
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
        return execution_evidence.read(self._access.grpc, watched, self._timeout).hits(
            watched
        )

    def _drawn(
        self, name: str, inputs: Mapping[str, Array]
    ) -> tuple[dict[str, Array], dict[str, str]]:
        tensor = next((t for t in self.spec.inputs if t.name == name), None)
        if tensor is None:
            raise errors.InvalidRequestError(
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
        payload = make_payload(alone, {name: settings}, self._rng)
        return payload.inputs, payload.datatypes


# Without a range integers are 0 or 1, which would repeat at once.
_FAR = {
    kind: (0, 2 ** (bits - 1) - 1)
    for kind, bits in (
        ("INT8", 8), ("INT16", 16), ("INT32", 32), ("INT64", 53),
        ("UINT8", 8), ("UINT16", 16), ("UINT32", 32), ("UINT64", 53),
    )
}  # fmt: skip
