"""The tokens of an answer, by the outputs of vLLM's and TensorRT-LLM's models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporter.errors import ProtocolError
from exporter.triton.protocol_types import Tokens
from exporter.triton.tensors import decode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from exporter.triton.protocol_types import OutputTensor

INPUT: Final = "num_input_tokens"
OUTPUT: Final = "num_output_tokens"
_INTEGERS: Final = frozenset({"INT32", "INT64", "UINT32", "UINT64"})
_MOST_BYTES: Final = 8192
_MOST_TOKENS: Final = 1 << 40


def tokens_of(outputs: Iterable[OutputTensor], before: Tokens | None = None) -> Tokens:
    """Return the tokens of a response, a batch added up, and of those `before` it.

    Each response of a stream has its own output, and the input of all.
    """
    found = {o.name: _sum(o) for o in outputs if o.name in (INPUT, OUTPUT)}
    first, output = found.get(INPUT), found.get(OUTPUT)
    if before is None:
        return Tokens(first, output)
    if output is not None:
        output = None if before.output is None else before.output + output
    return Tokens(before.input if first is None else first, output)


def _sum(output: OutputTensor) -> int | None:
    if output.datatype not in _INTEGERS or not 0 < len(output.data) <= _MOST_BYTES:
        return None
    try:
        # As Python's integers, which do not overflow.
        total = int(decode(output).astype(object).sum())
    except ProtocolError:
        return None
    return total if 0 <= total <= _MOST_TOKENS else None
