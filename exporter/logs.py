"""Structured logging to standard error: logfmt or JSON, one line an event."""

from __future__ import annotations

import logging
import re
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

import structlog

from exporter.standard_error import STANDARD_ERROR

if TYPE_CHECKING:
    from exporter.config import LogSettings

_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}

# What a terminal or a reader of lines takes for more than text. The renderer escapes
# the newline itself.
_CONTROL: Final = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


# The latest events, for the status page.
_RECENT: Final[deque[dict[str, Any]]] = deque(maxlen=100)
_SHOWN_CHARACTERS: Final = 300

_LOQUACIOUS: Final = ("grpc", "urllib3")


def configure(settings: LogSettings) -> None:
    """Send our events and those of the libraries through one renderer."""
    level = _LEVELS[settings.level]
    shared: list[structlog.typing.Processor] = [
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
        structlog.processors.add_log_level,
        _add_lines_lost,
        _remember,
        structlog.processors.format_exc_info,
    ]
    render: list[structlog.typing.Processor] = (
        [structlog.processors.JSONRenderer()]
        if settings.format == "json"
        else [
            _escape_control,
            structlog.processors.LogfmtRenderer(
                key_order=["ts", "level", "event"],
                drop_missing=True,
                bool_as_flag=False,
            ),
        ]
    )
    structlog.configure(
        processors=[*shared, *render],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", STANDARD_ERROR)),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(STANDARD_ERROR)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *render,
            ],
        )
    )
    # They log every failed attempt with a traceback, which our counters and one line of
    # ours cover.
    for name in _LOQUACIOUS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    logging.basicConfig(
        level=max(level, logging.WARNING), handlers=[handler], force=True
    )


def recent() -> list[dict[str, Any]]:
    """The latest events of the log, newest first: `at`, `level`, `event`, `detail`."""
    return list(reversed(_RECENT))


def _add_lines_lost(
    _: object, __: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    if STANDARD_ERROR.lines_lost:
        event["lines_lost"] = STANDARD_ERROR.lines_lost
    return event


def _remember(
    _: object, __: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    detail = ", ".join(
        f"{key} {value}"
        for key, value in event.items()
        if not key.startswith("_")
        and key not in {"event", "ts", "level", "exc_info"}
        and value is not None
    )
    _RECENT.append(
        {
            "at": time.time(),
            "level": event["level"],
            "event": str(event["event"])[:_SHOWN_CHARACTERS],
            "detail": detail[:_SHOWN_CHARACTERS],
        }
    )
    return event


def _escape_control(
    _: object, __: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    return {
        key: value
        if value is None or isinstance(value, bool)
        else _CONTROL.sub(_escaped, str(value))
        for key, value in event.items()
    }


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
