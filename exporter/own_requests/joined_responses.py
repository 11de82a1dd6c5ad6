"""The one answer that the responses of a stream make together."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from exporter.errors import ProtocolError
from exporter.triton.tensors import decode, shown_shape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from exporter.triton.protocol_types import Array, InferReply, ModelSpec


def joined_outputs(spec: ModelSpec, reply: InferReply) -> dict[str, Array]:
    """Return each output of a stream as one array; responses without it add nothing.

    Text is joined value by value, as a client that shows it does. All else is concatenated
    along the first axis, or the second where the first is the batch.

    Raises:
        ProtocolError: responses were not kept, or their shapes do not fit together.
    """
    if reply.is_cut:
        raise ProtocolError(
            f"the answer cannot be compared: it has {reply.responses} responses, and "
            f"the first {len(reply.streamed)} already fill the memory kept for a "
            "stream"
        )
    parts: dict[str, list[Array]] = defaultdict(list)
    for outputs in reply.streamed:
        for output in outputs:
            parts[output.name].append(decode(output))
    axis = 1 if spec.max_batch_size > 0 else 0
    return {name: _joined(name, arrays, axis) for name, arrays in parts.items()}


def _joined(name: str, arrays: Sequence[Array], axis: int) -> Array:
    first, is_text = arrays[0], arrays[0].dtype == np.object_
    for array in arrays:
        alike = array.dtype == first.dtype and array.ndim == first.ndim
        if alike and is_text:
            alike = array.shape == first.shape
        elif alike:
            # A response may have more or fewer values than another along this axis only.
            alike = first.ndim > axis and _others(array, axis) == _others(first, axis)
        if not alike:
            raise ProtocolError(
                f"output {name!r} has the shape {shown_shape(first.shape)} in one "
                f"response and {shown_shape(array.shape)} in another; they cannot be "
                "joined"
            )
    if not is_text:
        return np.concatenate(arrays, axis=axis)
    whole = np.empty(first.shape, np.object_)
    values = zip(*(array.ravel().tolist() for array in arrays), strict=True)
    whole.ravel()[:] = [b"".join(of_one) for of_one in values]
    return whole


def _others(array: Array, axis: int) -> tuple[int, ...]:
    return array.shape[:axis] + array.shape[axis + 1 :]
