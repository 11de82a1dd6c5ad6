"""Bodies of Triton's `/generate` and `/generate_stream`: flat JSON by the names of tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from exporter.errors import MirrorBodyError, MirrorUnsupportedError
from exporter.taps.mirroring import mirrored_body
from exporter.taps.mirroring.mirrored_body import Inference
from exporter.triton.event_stream import EventStream, looks_like_events

if TYPE_CHECKING:
    from collections.abc import Sequence

    from exporter.access.work_board import Direction as TokenDirection
    from exporter.taps.mirroring.mirrored_body import Direction
    from exporter.triton.protocol_types import Array, ModelSpec, TensorSpec

_INFERENCE: Final = {"request": b'"inputs"', "response": b'"outputs"'}
_LAST_COUNTS: Final = frozenset({"finish_reason"})
"""Outputs of text whose parts are not joined: the last one is of the whole answer."""
_MOST_DIMENSIONS: Final = 2


def read(
    body: bytes,
    direction: Direction,
    spec: ModelSpec,
    most_bytes: int,
    *,
    may_be_infer: bool = False,
) -> Inference | None:
    """The tensors of a body of at most `most_bytes`; None if it has none of the model's.

    A streamed answer is joined: texts as a whole, other outputs as in its last response.
    `may_be_infer` where only the body shows whether it is one of `/infer`.

    Raises:
        MirrorBodyError: it cannot be used.
    """
    tensors = spec.inputs if direction == "request" else spec.outputs
    if not tensors or (may_be_infer and _INFERENCE[direction] in body):
        return None
    if direction == "response" and looks_like_events(body):
        return _streamed(body, tensors, most_bytes)
    try:
        found = mirrored_body.document(body, most_bytes)
    except MirrorBodyError:
        return None
    arrays = _arrays(found, tensors)
    if not arrays:
        return None
    reported = mirrored_body.tokens_of(arrays) if direction == "response" else {}
    return _inference(found, arrays, reported)


def has_all_inputs(body: bytes, direction: Direction, spec: ModelSpec) -> bool:
    """Return whether the body seems to be a request with all inputs that the model needs."""
    wanted = [tensor.name for tensor in spec.inputs if not tensor.optional]
    named = (f'"{name}"'.encode() in body for name in wanted)
    return direction == "request" and bool(wanted) and all(named)


def _streamed(
    body: bytes, tensors: Sequence[TensorSpec], most_bytes: int
) -> Inference | None:
    texts: dict[str, list[Any]] = {}
    latest: dict[str, Array] = {}
    tokens: dict[TokenDirection, int] = {}
    found: dict[str, Any] = {}
    stream = EventStream(most_bytes)
    try:
        events = stream.feed(body)
    except ValueError as error:
        raise MirrorBodyError(f"cannot read an event: {error}") from None
    if stream.held_bytes:
        raise MirrorBodyError("the stream ends within an event")
    for event in events:
        found = mirrored_body.document(event, most_bytes)
        if isinstance(found.get("error"), str):
            return Inference({}, failed=True)
        arrays = _arrays(found, tensors)
        for name, array in arrays.items():
            if array.dtype == object and array.size == 1 and name not in _LAST_COUNTS:
                texts.setdefault(name, []).append(array.item())
        latest.update(arrays)
        reported = mirrored_body.tokens_of(arrays)
        # Each response has its own output, and the input of all.
        output = tokens.get("output", 0) + reported.pop("output", 0)
        tokens.update(reported)
        if output:
            tokens["output"] = output
    for name, parts in texts.items():
        whole = latest[name] = latest[name].copy()
        whole[...] = b"".join(parts)
    return _inference(found, latest, tokens) if latest else None


def _inference(
    found: dict[str, Any],
    tensors: dict[str, Array],
    tokens: dict[TokenDirection, int],
) -> Inference:
    return Inference(
        tensors,
        mirrored_body.text(found, "id"),
        mirrored_body.text(found, "model_name"),
        mirrored_body.text(found, "model_version"),
        as_sent=False,
        tokens=tokens,
    )


def _arrays(found: dict[str, Any], tensors: Sequence[TensorSpec]) -> dict[str, Array]:
    arrays = {}
    for tensor in tensors:
        if tensor.name not in found:
            continue
        rank = len(tensor.shape)
        if not 1 <= rank <= _MOST_DIMENSIONS:
            raise MirrorUnsupportedError(
                f"tensor {tensor.name!r} has {rank} dimensions; the generate extension "
                "carries single values and lists"
            )
        value = found[tensor.name]
        values = value if isinstance(value, list) else [value]
        shape = (1,) * (rank - 1) + (len(values),)
        arrays[tensor.name] = mirrored_body.from_json(
            tensor.name, tensor.datatype, shape, values
        )
    return arrays
