"""gRPC calls in flight: their answers, and the outcomes of their requests."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from google.protobuf.message import DecodeError

from exporter import errors
from exporter.network.grpc_core import grpc
from exporter.triton.kserve import service_pb2
from exporter.triton.streamed_reply import tokens_of
from loadtests.engine.answer_frames import message_outputs
from loadtests.engine.senders import Turn
from loadtests.result import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence as Many

    from loadtests.engine.grpc_sender import GrpcSender
    from loadtests.engine.http2 import Http2Connection
    from loadtests.engine.http2_streams import Header
    from loadtests.engine.recorder import Recorder
    from loadtests.engine.senders import Sequence
    from loadtests.plan import Body

pb: Final[Any] = service_pb2
_STREAM_PATH: Final = b"/inference.GRPCInferenceService/ModelStreamInfer"
_PREFIX_BYTES: Final = 5
_CODES: Final = {str(code.value[0]).encode(): code.name for code in grpc.StatusCode}
_OK: Final = b"0"
_DEADLINE: Final = b"4"


class Call(Turn):
    """One request on its way."""

    path: bytes | None = None

    __slots__ = (
        "began",
        "connection",
        "goodbyes",
        "message",
        "sender",
    )

    def __init__(
        self,
        sender: GrpcSender,
        index: int,
        place: int,
        body: Body,
        recorder: Recorder | None,
        sequence: Sequence | None,
        data: bytes,
    ) -> None:
        super().__init__(index, place, body, recorder, sequence)
        self.sender = sender
        self.message = b"\x00" + len(data).to_bytes(4, "big") + data
        self.connection: Http2Connection | None = None
        self.began = perf_counter()
        self.goodbyes = 0

    def queued(self) -> None:
        """The server allows no further stream at present."""
        if self.recorder is not None:
            self.recorder.queued += 1

    def answered(self, headers: Many[Header], content: bytes) -> None:
        """The answer is there."""
        now = perf_counter()
        found = dict(headers)
        status = found.get(b"grpc-status")
        if status == _OK:
            self._succeeded(now, self._fault(content))
        elif status == _DEADLINE:
            self.ended(Outcome.TIMEOUT, now, None)
        elif status is None:
            text = f"HTTP {found.get(b':status', b'?').decode()} without a gRPC status"
            self.ended(Outcome.ERROR, now, text)
        else:
            said = unquote(found.get(b"grpc-message", b"").decode("utf-8", "replace"))
            text = f"{_CODES.get(status, status.decode('latin-1'))}: {said}"
            self.ended(Outcome.ERROR, now, text)

    def ended(self, outcome: Outcome, now: float, message: str | None) -> None:
        """Record the outcome, of an answer that came in time or did not."""
        self.sender.finish(self, outcome, now, message)

    def receive_part(self, content: bytes | bytearray) -> bytes:
        """Raise NotImplementedError: only streams are processed in parts."""
        raise NotImplementedError

    def _succeeded(self, now: float, fault: str | None) -> None:
        outcome = Outcome.OK if fault is None else Outcome.WRONG
        self.ended(outcome, now, fault)

    def not_processed(self, reason: str) -> None:
        """Handle a server that shut down before it processed the call."""
        self.sender.resend(self, f"UNAVAILABLE: {reason}")

    def too_large(self, fault: str) -> None:
        """Handle an answer above the size limit."""
        self.ended(Outcome.WRONG, perf_counter(), fault)

    def lost(self, reason: str) -> None:
        """Handle a lost answer."""
        self.sender.lose(self, f"UNAVAILABLE: {reason}")

    def _fault(self, content: bytes) -> str | None:
        size = int.from_bytes(content[1:_PREFIX_BYTES], "big")
        if len(content) != _PREFIX_BYTES + size or content[0]:
            return f"the answer is not a gRPC message: {len(content)} bytes arrived"
        return self.sender.turns.checks[self.place].grpc_fault(
            content[_PREFIX_BYTES:], self.body
        )


class StreamCall(Call):
    """One request whose answer is a stream of responses."""

    path = _STREAM_PATH
    __slots__ = ("failure", "fault", "since", "tokens")

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.since: float | None = None
        """Time of the latest response."""
        self.fault: str | None = None
        self.failure: tuple[float, str] | None = None
        """Time and text of the model's error."""
        self.tokens = 0
        """Output tokens that the responses reported."""

    def receive_part(self, content: bytes | bytearray) -> bytes:
        """Process the complete messages; return the incomplete rest."""
        now, position, size = perf_counter(), 0, len(content)
        while size - position >= _PREFIX_BYTES:
            start = position + _PREFIX_BYTES
            end = start + int.from_bytes(content[position + 1 : start], "big")
            if end > size:
                break
            self._respond(bytes(content[start:end]), now)
            position = end
        return bytes(content[position:])

    def _respond(self, data: bytes, now: float) -> None:
        if self.failure is not None:
            return
        try:
            message = pb.ModelStreamInferResponse.FromString(data)
            outputs = message_outputs(message.infer_response)
        except (DecodeError, errors.ProtocolError) as error:
            self.fault = f"the answer is not an inference response: {error}"
            return
        if message.error_message:
            # The rest is read: Triton still writes, and can crash if the stream is
            # cancelled meanwhile.
            self.failure = now, message.error_message
        elif outputs and self.recorder is not None:
            self.recorder.respond(self.index, now, self.since)
            self.since = now
            self.tokens += tokens_of(outputs).output or 0
            check = self.sender.turns.checks[self.place]
            self.fault = self.fault or check.fault(outputs, self.body)

    def _fault(self, content: bytes) -> str | None:
        if content:
            return f"the answer ends in the middle of a message, after {len(content)} B"
        nothing = "the stream ended without a response"
        return self.fault or (nothing if self.since is None else None)

    def ended(self, outcome: Outcome, now: float, message: str | None) -> None:
        """Record the outcome: an error that a response brought counts, however it ended."""
        if self.failure is not None:
            now, message = self.failure
            outcome = Outcome.ERROR
        super().ended(outcome, now, message)

    def lost(self, reason: str) -> None:
        """Handle a stream that broke off."""
        if self.failure is None:
            super().lost(reason)
        else:
            self.ended(Outcome.ERROR, perf_counter(), reason)

    def _succeeded(self, now: float, fault: str | None) -> None:
        if self.tokens and self.recorder is not None and self.failure is None:
            self.recorder.count_tokens(self.index, self.tokens)
        super()._succeeded(now if self.since is None else self.since, fault)
