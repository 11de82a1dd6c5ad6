"""Embeddings of texts by a served model, within the budget of a golden probe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import structlog

from exporter import errors
from exporter.access.inventory import latest_version
from exporter.features.golden.golden_request import Asker
from exporter.triton.tensors import FLOATS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from exporter.access.collector_base import Access
    from exporter.features.golden.golden_checks import EmbeddingCheck
    from exporter.features.golden.golden_settings import GoldenSettings
    from exporter.numerics.normal import Floats
    from exporter.triton.protocol_types import Array, ModelSpec

log = structlog.get_logger()

_MOST_ROWS: Final = 64


class Embedder:
    """Asks embedding models; counts its `requests` and their `seconds`."""

    def __init__(
        self, access: Access, settings: GoldenSettings, rng: np.random.Generator
    ) -> None:
        self.requests = 0
        self.seconds = 0.0
        self._access = access
        self._settings = settings
        self._rng = rng
        self._failing: set[str] = set()

    def most_rows(self) -> int:
        """Rows to send at once: so many that each check takes one request, if it can be."""
        settings = self._settings
        sizes = (self._size(check.model) for check in settings.data.embeddings)
        rows = (max(1, size // 2) for size in sizes)
        return min(rows, default=settings.samples_per_request)

    def requests_for(self, rows: int) -> int:
        """Most requests that embed the answers to so many rows, and what is expected."""
        checks = self._settings.data.embeddings
        return sum(-(-2 * rows // self._size(check.model)) for check in checks)

    def vectors(self, check: EmbeddingCheck, texts: Sequence[bytes]) -> Floats:
        """Return the embeddings of the texts, one a row; equal ones are sent once.

        Raises:
            TritonError: the model is not ready, embeds no text or did not answer.
        """
        try:
            vectors = self._vectors(self._spec(check.model), texts)
        except errors.TritonError as error:
            if check.model not in self._failing:
                self._failing.add(check.model)
                log.warning(
                    "golden_embedding_failed",
                    model=check.model,
                    dataset=self._settings.dataset,
                    reason=str(error),
                )
            raise
        self._failing.discard(check.model)
        return vectors

    def _vectors(self, spec: ModelSpec, texts: Sequence[bytes]) -> Floats:
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

    def _size(self, model: str) -> int:
        found = self._found(model)
        return 1 if found is None else _size(found)

    def _found(self, model: str) -> ModelSpec | None:
        inventory = self._access.board.current
        version = latest_version(inventory, model)
        return None if version is None else inventory.models.get((model, version))

    def _spec(self, model: str) -> ModelSpec:
        spec = self._found(model)
        if spec is None:
            raise errors.InvalidRequestError(f"embedding model {model!r} is not ready")
        is_text = [tensor.datatype for tensor in spec.inputs] == ["BYTES"]
        floats = [tensor for tensor in spec.outputs if tensor.datatype in FLOATS]
        if not is_text or len(floats) != 1:
            raise _fault(spec, "want one input of BYTES and one float output")
        return spec

    def _asked(self, spec: ModelSpec, texts: Sequence[bytes]) -> Floats:
        settings = self._settings
        asker = Asker(
            self._access,
            spec,
            protocol=settings.protocol,
            timeout_seconds=settings.timeout_seconds,
            linger_seconds=settings.linger_seconds,
            ignored_input=None,
            rng=self._rng,
        )
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
