"""ModelInfer as a proxy mirrors it, the same message that Triton gets, to arrays.

The model is read from the first bytes, so that most messages are skipped unparsed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from google.protobuf.message import DecodeError

from exporter.errors import MirrorBodyError, MirrorUnsupportedError
from exporter.taps.mirroring.intake import Origin
from exporter.taps.mirroring.mirrored_body import (
    MAX_NAME_CHARACTERS,
    MAX_TENSORS,
    Inference,
    filled,
    scalars,
)
from exporter.taps.protobuf_wire import WireError, WireReader
from exporter.taps.tap_route import MessageRoute
from exporter.triton.kserve import pb
from exporter.triton.protocol_types import OutputTensor
from exporter.triton.tensors import MAX_RANK, array_dtype, shown_shape

if TYPE_CHECKING:
    from exporter.taps.mirroring.intake import Intake
    from exporter.taps.mirroring.mirrored_body import Parameters
    from exporter.taps.tap_route import Outcome
    from exporter.triton.protocol_types import Array

SOURCE: Final = "grpc"
_MODEL_NAME: Final = 1
_NAME_WITHIN_BYTES: Final = 4096
"""The name is expected in the first bytes: every client writes it first."""
_CONTENTS: Final[dict[str, str]] = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
"""Datatype -> the field that holds it; FP16 and BF16 travel raw only."""


def model_of(message: bytes) -> str:
    """The `model_name` of a serialised ModelInferRequest.

    Raises:
        MirrorBodyError: it is not such a message, or the name does not come early.
    """
    start = memoryview(message)[:_NAME_WITHIN_BYTES]
    try:
        for name in WireReader(_NAME_WITHIN_BYTES).contents(start, _MODEL_NAME):
            return _name(bytes(name))
    except WireError:
        pass
    raise MirrorBodyError("the message names no model")


def read(message: bytes) -> Inference:
    """The request that `message` is.

    Raises:
        MirrorBodyError: it is none.
    """
    request = pb.ModelInferRequest()
    try:
        request.ParseFromString(message)
    except DecodeError:
        raise MirrorBodyError("the message is not a ModelInferRequest") from None
    if not 0 < len(request.inputs) <= MAX_TENSORS:
        raise MirrorBodyError(
            f"found {len(request.inputs)} inputs; want 1 to {MAX_TENSORS}"
        )
    if request.model_name != model_of(message):
        # The last one counts; it was admitted by the first.
        raise MirrorBodyError("the message names two models")
    if len(request.id) > MAX_NAME_CHARACTERS:
        raise MirrorBodyError(f"the id has {len(request.id)} characters")
    return Inference(
        _tensors(request),
        request.id,
        request.model_name,
        request.model_version[:MAX_NAME_CHARACTERS],
        _parameters(request),
    )


def _name(data: bytes) -> str:
    if len(data) > MAX_NAME_CHARACTERS:
        raise MirrorBodyError(f"the model's name has {len(data)} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise MirrorBodyError("the model's name is not valid UTF-8") from None


def _tensors(request: Any) -> dict[str, Array]:
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        raise MirrorBodyError(
            f"found {len(raw)} raw contents for {len(request.inputs)} inputs"
        )
    tensors: dict[str, Array] = {}
    for place, entry in enumerate(request.inputs):
        name = entry.name
        if len(name) > MAX_NAME_CHARACTERS or not (
            name.isascii() or name.isprintable()
        ):
            raise MirrorBodyError("the name of a tensor is too long or unprintable")
        if name in tensors:
            raise MirrorBodyError(f"found tensor {name!r} twice")
        if "shared_memory_region" in entry.parameters:
            raise MirrorUnsupportedError(
                f"tensor {name!r} is in shared memory, which is not supported"
            )
        shape = tuple(entry.shape[: MAX_RANK + 1])
        if raw:
            tensors[name] = filled(
                OutputTensor(name, entry.datatype, shape, raw[place])
            )
        else:
            tensors[name] = _typed(entry, shape)
    return tensors


def _typed(entry: Any, shape: tuple[int, ...]) -> Array:
    """An input whose values are fields of the message."""
    field = _CONTENTS.get(entry.datatype)
    if field is None:
        raise MirrorBodyError(
            f"tensor {entry.name!r} has no raw content; {entry.datatype[:80]!r} needs it"
        )
    values = getattr(entry.contents, field)
    if entry.datatype == "BYTES":
        array: Array = np.empty(len(values), dtype=np.object_)
        array[:] = list(values)
    else:
        array = np.array(values)
    if len(shape) > MAX_RANK or any(size < 0 for size in shape):
        raise MirrorBodyError(
            f"tensor {entry.name!r} has the impossible shape {shown_shape(shape)}"
        )
    return _as_declared(entry, array, shape)


def _as_declared(entry: Any, array: Array, shape: tuple[int, ...]) -> Array:
    dtype = array_dtype(entry.datatype)
    try:
        declared = array.astype(dtype).reshape(shape)
    except (ValueError, OverflowError):
        raise MirrorBodyError(
            f"tensor {entry.name!r} has {array.size} elements; its shape is "
            f"{shown_shape(shape)}"
        ) from None
    if dtype.kind in "iu" and not np.array_equal(declared.ravel(), array):
        raise MirrorBodyError(
            f"tensor {entry.name!r} contains values that are not {entry.datatype}"
        )
    return declared


def _parameters(request: Any) -> Parameters:
    found = {}
    for name, value in request.parameters.items():
        which = value.WhichOneof("parameter_choice")
        if which is not None:
            found[name] = getattr(value, which)
    return scalars(found)


class MessageSink:
    """Receives requests to every model with a subscriber."""

    def __init__(self, intake: Intake, *, max_body_bytes: int) -> None:
        self._intake = intake
        self._max_body_bytes = max_body_bytes

    def route(self) -> MessageRoute:
        """Return the tap's route for it."""
        return MessageRoute(SOURCE, self._max_body_bytes, self.admit, self.process)

    def admit(self, message: bytes) -> tuple[Outcome | None, str]:
        """Return why a message is not read; None and "" where it is to be read."""
        try:
            model = model_of(message)
        except MirrorBodyError as error:
            return "malformed", str(error)
        return self._intake.admit(model, "request"), ""

    def process(self, message: bytes) -> tuple[Outcome, str]:
        """Read one message and hand it on."""
        try:
            found = read(message)
        except MirrorUnsupportedError as error:
            return "unsupported", str(error)
        except MirrorBodyError as error:
            return "malformed", str(error)
        origin = Origin(SOURCE, "request", found.model, found.version)
        return self._intake.publish(origin, found), ""
