"""Messages that both gRPC senders build."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from exporter.triton.kserve import service_pb2

if TYPE_CHECKING:
    from loadtests.engine.sequences import Sequence

pb: Final[Any] = service_pb2


def sequence_parameters(sequence: Sequence) -> bytes:
    """Return bytes that extend a message: fields in two parts are merged."""
    message = pb.ModelInferRequest()
    sequence_id = message.parameters["sequence_id"]
    if isinstance(sequence.correlation_id, str):
        sequence_id.string_param = sequence.correlation_id
    else:
        sequence_id.int64_param = sequence.correlation_id
    message.parameters["sequence_start"].bool_param = sequence.starts
    message.parameters["sequence_end"].bool_param = sequence.ends
    return bytes(message.SerializeToString())
