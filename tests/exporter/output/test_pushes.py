"""Pushes go on after an error that nobody foresaw."""

from __future__ import annotations

import asyncio
import random
import threading
import time

import structlog
from receiver import Receiver
from waiting import patience

from exporter.access.span_buffer import SpanBuffer
from exporter.output.otlp_settings import OtlpSettings
from exporter.output.push import OtlpRunner


def test_a_defect_while_pushing_is_logged_once_and_the_pushes_go_on():
    calls, fourth = [], threading.Event()

    def samples():
        calls.append(1)
        if len(calls) == 4:
            fourth.set()
        if len(calls) < 3:
            raise ValueError("nobody foresaw this")
        return []

    async def pushed(url):
        settings = OtlpSettings(endpoint=url, interval_seconds=0.1)
        spans = SpanBuffer(time.time_ns, random.Random(0))  # noqa: S311 - ids of spans
        runner = OtlpRunner(settings, "t", samples, spans, time.time_ns, 0)
        task = asyncio.create_task(runner.run())
        await asyncio.wait(
            {task, asyncio.ensure_future(asyncio.to_thread(fourth.wait, patience()))},
            timeout=patience(),
            return_when=asyncio.FIRST_COMPLETED,
        )
        task.cancel()
        return {s.labels: s.value for s in runner.samples() if len(s.labels) == 2}

    with Receiver() as collector, structlog.testing.capture_logs() as logs:
        counted = asyncio.run(pushed(collector.url))
    assert len(calls) >= 4
    assert counted["metrics", "failed"] == 2
    assert [e["event"] for e in logs].count("otlp_push_broken") == 1
