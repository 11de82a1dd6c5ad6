"""The metrics page of an OpenAI-compatible server: what its backend reports, and tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from exporter import errors
from exporter.access.collector_base import Access, CollectorSettings
from exporter.access.own_traffic import OwnCounts
from exporter.features.statistics.backend_metrics import BackendMetrics
from exporter.features.statistics.server_page import page_of
from exporter.features.statistics.token_counts import (
    TokenCounts,
    TokenEstimate,
    TokenRead,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from exporter.access.inventory import ModelKey
    from exporter.features.statistics.server_page import Page
    from exporter.samples import AnySample


class BackendPageSettings(CollectorSettings):
    """What the server's own metrics page reports, with `target.kind: openai`."""

    kind: Literal["backend_page"] = "backend_page"
    timeout_seconds: float = Field(default=2.0, gt=0, le=60)
    """Longest wait for the page."""

    def build(self, access: Access) -> BackendPageCollector:
        """The collector."""
        return BackendPageCollector(self, access)


class BackendPageCollector:
    """Exposes the page's metrics of known models, and production's tokens."""

    def __init__(self, settings: BackendPageSettings, access: Access) -> None:
        self._settings = settings
        self._access = access
        self._backends = BackendMetrics()
        self._tokens: dict[ModelKey, TokenCounts] = {}
        self._started = False
        """True once the page was read with models known: later ones are new."""

    def collect(self) -> Sequence[AnySample]:
        """Read the page once; without one there are no samples.

        Raises:
            TritonError: the server did not answer.
        """
        client = self._access.metrics
        if client is None:
            return ()
        before = self._access.own.snapshot()
        try:
            body = client.get(
                "/metrics", timeout_seconds=self._settings.timeout_seconds
            )
        except errors.UnavailableError:
            for key, counts in self._tokens.items():
                counts.server_gone(before.get(key, OwnCounts()))
            raise
        page = page_of(body)
        models = self._access.board.current.models
        self._tokens = {k: c for k, c in self._tokens.items() if k in models}
        samples = [*self._backends.samples(page, models), *self._counted(page, before)]
        self._started = self._started or bool(models)
        return samples

    def _counted(
        self, page: Page, before: dict[ModelKey, OwnCounts]
    ) -> Iterator[AnySample]:
        """Count the tokens; the ledger is read after the page, as with statistics."""
        after = self._access.own.snapshot()
        for key in self._access.board.current.models:
            fields = page.backend.get(key, {})
            if key not in self._tokens:
                if not fields:
                    continue
                self._tokens[key] = TokenCounts(is_new=self._started)
            own = before.get(key, OwnCounts()), after.get(key, OwnCounts())
            self._tokens[key].advance(TokenRead(0, *own, fields, None, TokenEstimate()))
            yield from self._tokens[key].samples(key)
