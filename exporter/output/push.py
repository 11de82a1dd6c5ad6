"""Pushes samples and probe spans to an OpenTelemetry collector, at its own pace.

A collector that is down or slow costs nothing but its own counter: one request at a
time, each with a deadline, on a thread of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import structlog

from exporter import catalogue
from exporter.output.otlp_settings import address_of
from exporter.runtime.workers import Workers
from exporter.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from exporter.access.span_buffer import SpanBuffer
    from exporter.output.otlp_settings import OtlpSettings
    from exporter.samples import AnySample

log = structlog.get_logger()

_OUTCOMES: Final = ("ok", "failed")


class OtlpRunner:
    """Pushes for ever; ends by cancellation.

    `start_ns` is the start time of totals that do not say when they were created.
    """

    def __init__(
        self,
        settings: OtlpSettings,
        target: str,
        samples: Callable[[], Iterable[AnySample]],
        spans: SpanBuffer,
        wall_clock_ns: Callable[[], int],
        start_ns: int,
    ) -> None:
        self.settings = settings
        self._target = target
        self._samples = samples
        self._spans = spans
        self._wall_clock_ns = wall_clock_ns
        self._start_ns = start_ns
        self._outcomes: Counter[tuple[str, str]] = Counter()
        self._in_a_row: Counter[str] = Counter()
        self._broken: set[str] = set()
        """Kinds of which a defect was logged."""

    async def run(self) -> None:
        """Push at every interval, one push at a time."""
        # The SDK logs every failed attempt; our counter and one line say it once.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        workers = Workers(1, "otlp")
        exporter: Any = None
        try:
            while True:
                await asyncio.sleep(self.settings.interval_seconds)
                try:
                    exporter = exporter or await workers.submit(self._connect)
                    await workers.submit(self._push, exporter)
                except RuntimeError:  # no thread can be started now
                    self._count("metrics", ok=False)
        finally:
            if exporter is not None:
                workers.submit(exporter.close)
            workers.close()

    def samples(self) -> list[AnySample]:
        """Return the counters of the pushes."""
        kinds = ("metrics", "traces") if self.settings.traces else ("metrics",)
        samples: list[AnySample] = [
            Sample(
                catalogue.OTLP_EXPORTS, self._outcomes[kind, outcome], (kind, outcome)
            )
            for kind in kinds
            for outcome in _OUTCOMES
        ]
        samples += [
            Sample(catalogue.OTLP_CONSECUTIVE_FAILURES, self._in_a_row[kind], (kind,))
            for kind in kinds
        ]
        return samples

    def _connect(self) -> object:
        # Imported late: it costs 60 ms and 20 MB, needed only to push.
        from exporter.output.otlp import OtlpExporter  # noqa: PLC0415

        return OtlpExporter(self.settings, self._target, start_ns=self._start_ns)

    def _push(self, exporter: Any) -> None:
        self._send(
            "metrics",
            lambda: exporter.send_metrics(self._samples(), self._wall_clock_ns()),
        )
        if self.settings.traces:
            spans = self._spans.drain()
            if spans:
                self._send("traces", lambda: exporter.send_spans(spans))

    def _send(self, kind: str, send: Callable[[], bool]) -> None:
        try:
            ok = send()
        except Exception:  # a defect would end the pushes for good
            if kind not in self._broken:
                self._broken.add(kind)
                log.exception("otlp_push_broken", kind=kind)
            ok = False
        self._count(kind, ok=ok)

    def _count(self, kind: str, *, ok: bool) -> None:
        outcome = "ok" if ok else "failed"
        if not ok and not self._outcomes[kind, "failed"]:
            log.warning(
                "otlp_push_failed",
                kind=kind,
                collector=address_of(self.settings.endpoint),
            )
        self._outcomes[kind, outcome] += 1
        self._in_a_row[kind] = 0 if ok else self._in_a_row[kind] + 1
