"""Embeddings of texts, asked of a model that the server has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from exporter import errors
from exporter.access.inventory import latest_version
from exporter.triton.tensors import FLOATS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from drift.numerics.normal import Floats
    from exporter.access.inventory import InventoryBoard
    from exporter.own_requests.asking import Asker
    from exporter.triton.protocol_types import Array, ModelSpec

_MOST_ROWS: Final = 64


@dataclass(slots=True)
class TextEmbedder:
    """Asks embedding models; counts its `requests` and their `seconds`.

    `asker_of` returns what asks one model.
    """

    board: InventoryBoard
    asker_of: Callable[[ModelSpec], Asker]
    requests: int = 0
    seconds: float = 0.0

    def size(self, model: str) -> int:
        """Return how many texts a request may have."""
        found = self.found(model)
        return 1 if found is None else _size(found)

    def width(self, model: str) -> int:
        """Return the numbers in an embedding; 0 where the model leaves that open.

        Raises:
            TritonError: the model is not ready, or embeds no text.
        """
        spec = self._spec(model)
        (output,) = (t for t in spec.outputs if t.datatype in FLOATS)
        shape = output.shape[1:] if spec.max_batch_size > 0 else output.shape
        return int(np.prod([max(size, 0) for size in shape]))

    def vectors(self, model: str, texts: Sequence[bytes]) -> Floats:
        """Return the embeddings of the texts, one a row; equal ones are sent once.

        Raises:
            TritonError: the model is not ready, embeds no text or did not answer.
        """
        spec = self._spec(model)
        found: dict[bytes, Floats] = {}
        different = list(dict.fromkeys(texts))
        size = _size(spec)
        for begin in range(0, len(different), size):
            some = different[begin : begin + size]
            found |= zip(some, self._asked(spec, some), strict=True)
        try:
            return np.stack([found[text] for text in texts])
        except ValueError as error:
            raise _fault(spec, f"its embeddings differ in size: {error}") from None

    def found(self, model: str) -> ModelSpec | None:
        """The latest version of a model; None while the server has none."""
        inventory = self.board.current
        version = latest_version(inventory, model)
        return None if version is None else inventory.models.get((model, version))

    def _spec(self, model: str) -> ModelSpec:
        spec = self.found(model)
        if spec is None:
            raise errors.InvalidRequestError(f"embedding model {model!r} is not ready")
        is_text = [tensor.datatype for tensor in spec.inputs] == ["BYTES"]
        floats = [tensor for tensor in spec.outputs if tensor.datatype in FLOATS]
        if not is_text or len(floats) != 1:
            raise _fault(spec, "want one input of BYTES and one float output")
        return spec

    def _asked(self, spec: ModelSpec, texts: Sequence[bytes]) -> Floats:
        asker = self.asker_of(spec)
        (tensor,) = spec.inputs
        array: Array = np.empty(len(texts), np.object_)
        array[:] = texts
        shaped = array.reshape(-1, *(1 for _ in tensor.shape[1:]))
        answer = asker.ask({tensor.name: shaped}, {tensor.name: "BYTES"})
        self.requests += asker.requests
        self.seconds += asker.seconds
        if answer.error is not None:
            raise _fault(spec, str(answer.error))
        vectors = next(
            (a for a in answer.outputs.values() if a.dtype.kind == "f"), np.empty(0)
        )
        if vectors.size == 0 or vectors.size % len(texts):
            raise _fault(spec, f"found {vectors.size} values for {len(texts)} texts")
        return vectors.reshape(len(texts), -1).astype(np.float64)


def _size(spec: ModelSpec) -> int:
    """Return how many texts a request may have."""
    return min(spec.max_batch_size, _MOST_ROWS) or 1


def _fault(spec: ModelSpec, reason: str) -> errors.ProtocolError:
    return errors.ProtocolError(f"embedding model {spec.name!r}: {reason}")
