"""Structured logging to standard error: logfmt or JSON, one line an event."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Final

import structlog

if TYPE_CHECKING:
    from exporter.config import LogSettings

_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def configure(settings: LogSettings) -> None:
    """Send our events and those of the libraries through one renderer."""
    level = _LEVELS[settings.level]
    shared: list[structlog.typing.Processor] = [
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
        structlog.processors.add_log_level,
        structlog.processors.format_exc_info,
    ]
    render: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if settings.format == "json"
        else structlog.processors.LogfmtRenderer(
            key_order=["ts", "level", "event"], drop_missing=True
        )
    )
    structlog.configure(
        processors=[*shared, render],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                render,
            ],
        )
    )
    # Libraries say what concerns an operator at warning and above.
    logging.basicConfig(
        level=max(level, logging.WARNING), handlers=[handler], force=True
    )
