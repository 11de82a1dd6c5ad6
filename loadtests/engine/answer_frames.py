"""Checks that an answer with status success has the form of the model's answer.

Parsing and checking an answer costs some 20 µs, too much for every one of thousands a
second, and leaving it out would take empty tensors for a very fast model. So the first
answer is checked in full, and its frame is kept: every byte of it but the tensors'
contents. An answer with the same frame has the same outputs, dtypes, shapes and sizes;
of its contents only NaN is looked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from google.protobuf.message import DecodeError

from exporter import errors
from exporter.own_requests.answer_checks import output_fault
from exporter.triton.http_tensors import (
    HEADER_LENGTH,
    decode_binary_reply,
    decode_json_reply,
)
from exporter.triton.kserve import service_pb2
from exporter.triton.protocol_types import OutputTensor
from exporter.triton.tensors import FLOATS, array_dtype, decode, encode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from exporter.own_requests.answer_checks import Check
    from exporter.triton.protocol_types import Array
    from loadtests.plan import Body, Entry

pb: Final[Any] = service_pb2
_MAX_FRAMES: Final = 64
"""Maximum of different frames that are cached for an entry."""
_CHECKS: Final[frozenset[Check]] = frozenset({"nan"})
_SIZE_BITS: Final = 7
"""Bits of a size in each of its bytes."""
_CONTENTS: Final = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}


@dataclass(frozen=True, slots=True)
class _Frame:
    """The bytes of an answer that are not tensor contents, and their positions."""

    rows: int
    pieces: tuple[tuple[int, bytes], ...]
    floats: tuple[tuple[np.dtype[Any], int, int], ...]
    """The dtype, number and position of floating-point values."""

    def fits(self, answer: bytes) -> bool:
        return all(
            answer.startswith(piece, at) for at, piece in self.pieces
        ) and not any(np.isnan(np.frombuffer(answer, *at)).any() for at in self.floats)


class AnswerCheck:
    """Judges the answers to one entry's requests."""

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self._frames: dict[int, _Frame] = {}
        self._exact = not any(body.expected for body in entry.bodies)
        # BF16 has no numpy type in which NaN could be looked for.
        self._learns = all(
            t.datatype not in {"BYTES", "BF16"} for t in entry.spec.outputs
        )

    def knows(self, answer: bytes, body: Body) -> bool:
        """Return True if it has the frame of an answer that was already found correct."""
        frame = self._frames.get(len(answer))
        return (
            frame is not None
            and self._exact
            and frame.rows == body.rows
            and frame.fits(answer)
        )

    def grpc_fault(self, answer: bytes, body: Body) -> str | None:
        """Return the defect of a serialised ModelInferResponse; None if it has none."""
        if self.knows(answer, body):
            return None
        try:
            message = pb.ModelInferResponse.FromString(answer)
            outputs = message_outputs(message)
        except (DecodeError, errors.ProtocolError) as error:
            return f"the answer is not an inference response: {error}"
        fault = self.fault(outputs, body)
        if fault is None and self._learns and message.raw_output_contents:
            pieces = _grpc_pieces(answer, message.raw_output_contents)
            self._learn(answer, body.rows, pieces, outputs)
        return fault

    def http_fault(
        self,
        whole: bytes,
        head: int,
        json_bytes: int | None,
        body: Body,
        *,
        learns: bool = True,
    ) -> str | None:
        """Return the defect of an HTTP answer whose head is the first `head` bytes.

        `json_bytes` of what follows is JSON, the rest the tensors' binary content; None
        where all of it is JSON. Where it `learns`, later answers with this frame are
        known to be correct.
        """
        content = whole[head:]
        try:
            if json_bytes is None:
                outputs = decode_json_reply(content)
            else:
                outputs = decode_binary_reply({HEADER_LENGTH: str(json_bytes)}, content)
        except errors.ProtocolError as error:
            return str(error)
        fault = self.fault(outputs, body)
        if fault is None and learns and self._learns and json_bytes is not None:
            frame = whole[: head + json_bytes]
            if len(frame) < len(whole):
                self._learn(whole, body.rows, ((0, frame),), outputs)
        return fault

    def fault(self, outputs: Sequence[OutputTensor], body: Body) -> str | None:
        """Return the error in these outputs; None if there is none."""
        spec = self._entry.spec
        fault = output_fault(spec, outputs, _CHECKS, known=body.expected)
        if fault is not None:
            return fault
        if spec.max_batch_size:
            for output in outputs:
                if output.shape[0] != body.rows:
                    return (
                        f"output {output.name!r} has {output.shape[0]} rows; "
                        f"{body.rows} were sent"
                    )
        return _golden_fault(outputs, body.expected, self._entry.tolerance)

    def _learn(
        self,
        answer: bytes,
        rows: int,
        pieces: tuple[tuple[int, bytes], ...],
        outputs: Sequence[OutputTensor],
    ) -> None:
        if not pieces or len(self._frames) >= _MAX_FRAMES:
            return
        # In reverse: contents come last, each after its piece where it has one.
        floats, end = [], len(answer)
        for place, output in enumerate(reversed(outputs)):
            end -= len(output.data)
            if output.datatype in FLOATS:
                dtype = array_dtype(output.datatype)
                floats.append((dtype, len(output.data) // dtype.itemsize, end))
            if answer[end : end + len(output.data)] != output.data:
                return
            if len(pieces) > 1:
                end = pieces[place][0]
        self._frames[len(answer)] = _Frame(rows, pieces, tuple(floats))


def message_outputs(message: Any) -> tuple[OutputTensor, ...]:
    """Return the outputs of a ModelInferResponse, raw or typed.

    Raises:
        ProtocolError: there are contents for another number of outputs.
    """
    raw = message.raw_output_contents
    if raw and len(raw) != len(message.outputs):
        raise errors.ProtocolError(
            f"found {len(raw)} raw contents for {len(message.outputs)} outputs"
        )
    return tuple(
        OutputTensor(
            tensor.name,
            tensor.datatype,
            tuple(tensor.shape),
            raw[place] if raw else _typed_content(tensor),
        )
        for place, tensor in enumerate(message.outputs)
    )


def _typed_content(tensor: Any) -> bytes:
    values = getattr(tensor.contents, _CONTENTS.get(tensor.datatype, ""), ())
    array = np.empty(len(values), object)
    array[:] = list(values)
    return encode(array, tensor.datatype)


def _grpc_pieces(
    answer: bytes, contents: Sequence[bytes]
) -> tuple[tuple[int, bytes], ...]:
    """Return the pieces of the message outside its raw contents, which come last in it.

    Each has a tag and its size before it (https://protobuf.dev/programming-guides/encoding/).
    Empty if they do not come last: such an answer is not learnt.
    """
    pieces: list[tuple[int, bytes]] = []
    end = len(answer)
    for content in reversed(contents):
        start = end - len(content)
        if answer[start:end] != content:
            return ()
        head = start - 1 - max(-(-len(content).bit_length() // _SIZE_BITS), 1)
        pieces.append((head, answer[head:start]))
        end = head
    return (*pieces, (0, answer[:end]))


def _golden_fault(
    outputs: Sequence[OutputTensor], expected: Mapping[str, Array], tolerance: float
) -> str | None:
    for output in outputs:
        wanted = expected.get(output.name)
        if wanted is None:
            continue
        found = decode(output)
        if found.shape != wanted.shape:
            return (
                f"output {output.name!r} has shape {list(found.shape)}; the correct "
                f"answer has {list(wanted.shape)}"
            )
        if not _same(found, wanted, tolerance):
            return f"output {output.name!r} is not the correct answer"
    return None


def _same(found: Array, wanted: Array, tolerance: float) -> bool:
    if found.dtype.kind == "O":
        return bool((found == wanted).all())
    is_integer = found.dtype.kind in "biu"
    if is_integer and tolerance < 1:
        return bool((found == wanted).all())
    return bool(
        np.allclose(
            np.asarray(found, np.float64),
            np.asarray(wanted, np.float64),
            # The number of a token or class is large, and the next one is another.
            rtol=0.0 if is_integer else tolerance,
            atol=tolerance,
            equal_nan=True,
        )
    )
