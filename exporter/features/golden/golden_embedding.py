"""Embeddings that golden checks need: how many requests they take, and what failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from exporter import errors
from exporter.own_requests.embedding import TextEmbedder

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from drift.numerics.normal import Floats
    from exporter.access.collector_base import Access
    from exporter.features.golden.golden_checks import EmbeddingCheck
    from exporter.features.golden.golden_settings import GoldenSettings

log = structlog.get_logger()


class Embedder:
    """Asks the embedding models of a golden set's checks."""

    def __init__(
        self, access: Access, settings: GoldenSettings, rng: np.random.Generator
    ) -> None:
        self._settings = settings
        self._embedder = TextEmbedder(
            access,
            rng,
            settings.protocol,
            settings.timeout_seconds,
            settings.linger_seconds,
        )
        self._failing: set[str] = set()

    @property
    def requests(self) -> int:
        """Requests so far."""
        return self._embedder.requests

    @property
    def seconds(self) -> float:
        """Time that they took."""
        return self._embedder.seconds

    def most_rows(self) -> int:
        """Rows to send at once: so many that each check takes one request, if it can be."""
        settings = self._settings
        sizes = (self._embedder.size(check.model) for check in settings.data.embeddings)
        rows = (max(1, size // 2) for size in sizes)
        return min(rows, default=settings.samples_per_request)

    def requests_for(self, rows: int) -> int:
        """Most requests that embed the answers to so many rows, and what is expected."""
        checks = self._settings.data.embeddings
        return sum(-(-2 * rows // self._embedder.size(check.model)) for check in checks)

    def vectors(self, check: EmbeddingCheck, texts: Sequence[bytes]) -> Floats:
        """Return the embeddings of the texts, one a row; equal ones are sent once.

        Raises:
            TritonError: the model is not ready, embeds no text or did not answer.
        """
        try:
            vectors = self._embedder.vectors(check.model, texts)
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
