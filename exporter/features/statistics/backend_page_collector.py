"""The metrics page of an OpenAI-compatible server: what its backend reports, and tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from exporter import errors
from exporter.access.collector_base import Access, CollectorSettings
from exporter.access.own_traffic import NOTHING, OwnCounts, OwnTokens
from exporter.features.statistics.chosen_series import ChosenSeries, MoreBackendMetrics
from exporter.features.statistics.server_page import BackendMetrics, page_of
from exporter.features.statistics.token_counts import (
    TokenCounts,
    TokenEstimate,
    TokenRead,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from exporter.access.inventory import ModelKey
    from exporter.samples import AnySample
    from exporter.triton.http import HttpClient
    from exporter.triton.protocol_types import ModelSpec


class BackendPageSettings(CollectorSettings):
    """Metrics from the server's own metrics page, with `target.kind: openai`."""

    kind: Literal["backend_page"] = "backend_page"
    needs_triton: ClassVar[bool] = False
    timeout_seconds: float = Field(default=2.0, gt=0, le=60)
    """Timeout of a request to the page."""

    backend_metrics: MoreBackendMetrics = Field(default={})
    """More metrics of the server, by a name of your choice, as `backend_metrics` of the
    collector `statistics`."""

    def build(self, access: Access) -> BackendPageCollector:
        """The collector."""
        return BackendPageCollector(self, access)


class BackendPageCollector:
    """Exposes the page's metrics of known models, and production's tokens."""

    def __init__(self, settings: BackendPageSettings, access: Access) -> None:
        self._settings = settings
        self._access = access
        self._backends = BackendMetrics()
        self._chosen = ChosenSeries(settings.backend_metrics)
        self._tokens: dict[ModelKey, TokenCounts] = {}
        self._gone = OwnCounts()
        """Our own requests to names that are no longer listed and had no counter."""
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
        models = self._access.board.current.models
        self._forget_own(models.keys() | self._tokens.keys())
        if self._started and not any(c.awaits_quiet for c in self._tokens.values()):
            return self._collected(client, models, self._access.own.snapshot())
        with self._access.own.paused() as settled:
            return self._collected(client, models, settled)

    def _collected(
        self,
        client: HttpClient,
        models: Mapping[ModelKey, ModelSpec],
        before: Mapping[ModelKey, OwnCounts],
    ) -> Sequence[AnySample]:
        try:
            body = client.get(
                "/metrics", timeout_seconds=self._settings.timeout_seconds
            )
        except errors.UnavailableError:
            for key, counts in self._tokens.items():
                counts.server_gone(self._ours(before, key))
            raise
        page = page_of(body, self._chosen)
        for key in self._tokens.keys() - models - page.backend.keys():
            # No counter of the page includes our requests to it any longer.
            if self._access.own.forget(key):
                del self._tokens[key]
        if not self._tokens:
            self._gone = OwnCounts()
        # The ledger is read again after the page, as with the statistics.
        after = self._access.own.snapshot()
        for key in models:
            if key not in self._tokens and page.backend.get(key):
                self._tokens[key] = TokenCounts(is_new=self._started)
        self._started = self._started or bool(models)
        samples = list(self._backends.samples(page, models))
        for key, counts in self._tokens.items():
            ours = self._ours(before, key), self._ours(after, key)
            fields = page.backend.get(key, {})
            counts.advance(TokenRead(0, *ours, fields, None, TokenEstimate()))
            samples += counts.samples(key)
        return samples

    def _forget_own(self, models: Collection[ModelKey]) -> None:
        for key in self._access.own.snapshot().keys() - models:
            counts = self._access.own.counts(key)
            if self._access.own.forget(key):
                self._gone = _sum((self._gone, counts))

    def _ours(self, ledger: Mapping[ModelKey, OwnCounts], key: ModelKey) -> OwnCounts:
        """Return our own requests whose tokens a model's counters include.

        vLLM counts those to its adapters and aliases under the one name on its page.
        """
        if len(self._tokens) > 1:
            return ledger.get(key, OwnCounts())
        return _sum((self._gone, *ledger.values()))


def _sum(counts: Iterable[OwnCounts]) -> OwnCounts:
    """Return what token counts use of several ledgers."""
    found = tuple(counts)
    return OwnCounts(
        ok=sum(c.ok for c in found),
        failed=sum(c.failed for c in found),
        in_flight=sum((c.in_flight for c in found), NOTHING),
        under_way=frozenset().union(*(c.under_way for c in found)),
        input_tokens=sum((c.input_tokens for c in found), OwnTokens()),
        output_tokens=sum((c.output_tokens for c in found), OwnTokens()),
    )
