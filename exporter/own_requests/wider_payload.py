"""Larger shapes for a probe's inputs, so that a response cache cannot know all of them.

A response cache answers for requests whose inputs it has seen. Triton's key has the bytes
of the inputs and nothing else: no parameters, no id, not even the shapes. Integers and BOOL are drawn from {0, 1},
since larger indices can fail a model on a GPU, so small inputs have few values. More rows
of a batch and longer open dimensions are within what the model declares.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from exporter.own_requests.payload import InputSettings, chosen_inputs
from exporter.triton.tensors import FLOATS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from exporter.triton.protocol_types import ModelSpec, TensorSpec

_ENOUGH_BITS: Final = 24.0
"""2^24 requests: none is met again while a server runs."""
_MOST_ROWS: Final = 32
_MOST_LENGTH: Final = 32
_MOST_VALUES: Final = 1024
"""Limit of all values of a wider request."""


def wider(
    spec: ModelSpec, overrides: Mapping[str, InputSettings]
) -> dict[str, InputSettings] | None:
    """Return settings with larger shapes; None where the model takes no others safely.

    All open dimensions get one length, since inputs often have to agree in it. A shape
    that the configuration gives stays, and so does every other.
    """
    inputs = chosen_inputs(spec, overrides)
    settings = {t.name: overrides.get(t.name, InputSettings()) for t in inputs}
    if spec.sequence or any(s.shape is not None for s in settings.values()):
        return None
    best: dict[str, tuple[int, ...]] | None = None
    most = _bits(
        _shapes(inputs, 1, 1, batched=spec.max_batch_size > 0), inputs, settings
    )
    for rows, length in _sizes(spec):
        shapes = _shapes(inputs, rows, length, batched=spec.max_batch_size > 0)
        bits = _bits(shapes, inputs, settings)
        if most >= _ENOUGH_BITS or sum(map(math.prod, shapes.values())) > _MOST_VALUES:
            break
        if bits > most:
            best, most = shapes, bits
    if best is None:
        return None
    return dict(overrides) | {
        name: settings[name].model_copy(update={"shape": shape})
        for name, shape in best.items()
    }


def _sizes(spec: ModelSpec) -> Iterator[tuple[int, int]]:
    """Rows and lengths, smallest first: rows are independent, lengths may matter."""
    rows = max(1, min(spec.max_batch_size, _MOST_ROWS))
    for count in range(2, rows + 1):
        yield count, 1
    for length in range(2, _MOST_LENGTH + 1):
        yield rows, length


def _shapes(
    inputs: Sequence[TensorSpec], rows: int, length: int, *, batched: bool
) -> dict[str, tuple[int, ...]]:
    return {
        tensor.name: tuple(
            size if size >= 0 else rows if batched and place == 0 else length
            for place, size in enumerate(tensor.shape)
        )
        for tensor in inputs
    }


def _bits(
    shapes: Mapping[str, tuple[int, ...]],
    inputs: Sequence[TensorSpec],
    settings: Mapping[str, InputSettings],
) -> float:
    """Return the binary logarithm of how many different requests there are."""
    return sum(
        _bits_each(tensor, settings[tensor.name]) * math.prod(shapes[tensor.name])
        for tensor in inputs
    )


def _bits_each(tensor: TensorSpec, settings: InputSettings) -> float:
    if settings.values is not None:
        return math.log2(len(set(settings.values)))
    if tensor.datatype in FLOATS:
        low, high = settings.range or (0, 1)
        return _BITS_OF_FLOATS if high > low else 0.0
    if tensor.datatype == "BYTES":
        return _BITS_OF_WORDS
    low, high = settings.range or (0, 1)
    return math.log2(max(1, math.floor(high) - math.ceil(low) + 1))


_BITS_OF_FLOATS: Final = 10.0
"""FP16 and BF16 have about as many values between 0 and 1 that are likely to be drawn."""
_BITS_OF_WORDS: Final = math.log2(1_000_000)
