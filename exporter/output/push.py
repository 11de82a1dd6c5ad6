"""Pushes samples and probe spans to an OpenTelemetry collector, at its own pace.

A collector that is down or slow costs nothing but its own counter: one request at a
time, each with a deadline, on a thread of its own.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import structlog

from exporter import catalogue
from exporter.errors import ConfigError
from exporter.output.otlp_settings import address_of
from exporter.samples import Sample
from exporter.system.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from exporter.access.span_buffer import SpanBuffer
    from exporter.output.otlp_settings import OtlpSettings
    from exporter.samples import AnySample

log = structlog.get_logger()

_OUTCOMES: Final = ("ok", "failed")
_PATH: Final = re.compile(r" with url: \S+")
_LONGEST_REASON: Final = 300


class _Reason(logging.Handler):
    """Keeps the first message of the SDK about a push, without secrets of the URL."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(logging.WARNING)
        self._user, at, _ = urlsplit(endpoint).netloc.rpartition("@")
        self._user += at
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message, unless there is one already."""
        said = _PATH.sub("", record.getMessage())
        if self._user:
            said = said.replace(self._user, "")
        self.text = self.text or said[:_LONGEST_REASON]


def _remove_variables() -> None:
    """Remove the SDK's variables, which add headers and certificates to those given.

    Nothing but the config file shall be read; what that refers to is kept by `serve`.
    """
    for name in tuple(os.environ):
        if name.startswith("OTEL_"):
            os.environ.pop(name, None)


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
        self._reason = _Reason(settings.endpoint)

    async def run(self) -> None:
        """Push at every interval, one push at a time."""
        # The SDK logs every failed attempt; our counter and one line say it once.
        sdk = logging.getLogger("opentelemetry")
        sdk.setLevel(logging.WARNING)
        sdk.propagate = False
        sdk.addHandler(self._reason)
        workers = Workers(1, "otlp")
        exporter: Any = None
        try:
            while True:
                await asyncio.sleep(self.settings.interval_seconds)
                try:
                    exporter = exporter or await workers.submit(self._connect)
                    await workers.submit(self._push, exporter)
                # No thread can be started now, or a TLS file cannot be read.
                except (RuntimeError, ConfigError) as error:
                    self._reason.text = str(error)
                    self._count("metrics", ok=False)
        finally:
            if exporter is not None:
                workers.submit(exporter.close)
            # Last: the SDK's messages would go to standard error as they are.
            workers.submit(lambda: sdk.removeHandler(self._reason))
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

        _remove_variables()
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
        self._reason.text = ""
        try:
            ok = send()
        except Exception as error:  # a defect would end the pushes for good
            self._reason.text = repr(error)
            if not self._in_a_row[kind]:
                log.exception("otlp_push_broken", kind=kind)
            ok = False
        self._count(kind, ok=ok)

    def _count(self, kind: str, *, ok: bool) -> None:
        collector = address_of(self.settings.endpoint)
        if ok and self._in_a_row[kind]:
            log.info("otlp_push_recovered", kind=kind, collector=collector)
        elif not ok and not self._in_a_row[kind]:
            reason = self._reason.text or "unknown"
            log.warning(
                "otlp_push_failed", kind=kind, collector=collector, reason=reason
            )
        self._outcomes[kind, "ok" if ok else "failed"] += 1
        self._in_a_row[kind] = 0 if ok else self._in_a_row[kind] + 1
