"""Structured logging to standard error: logfmt or JSON, one line an event."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final, TextIO, cast

import structlog

from exporter.system.standard_error import STANDARD_ERROR

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from exporter.config.configuration import LogSettings

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
# Fields that say why and what to do, in this order.
_SENTENCES: Final = (
    "reason",
    "problem",
    "problems",
    "effect",
    "lost",
    "remedy",
    "advice",
)
_UNITS: Final = {"seconds": "s", "bytes": "bytes"}

_LOQUACIOUS: Final = ("grpc", "urllib3")

_MOST_KINDS: Final = 256


class _Allowance:
    """Rate limit for lines of one kind: a burst, then a number per second.

    Anyone who can connect to us can cause some of our lines and of the libraries'; a disk
    or a log store must not fill up with them.
    """

    def __init__(
        self, at_once: int, per_second: float, clock: Callable[[], float]
    ) -> None:
        self._at_once, self._per_second = at_once, per_second
        self._clock = clock
        self._kinds: dict[str, tuple[float, float, int]] = {}
        self._lock = threading.Lock()

    def take(self, kind: str) -> int | None:
        """Return how many lines were left out before this one; None if it is, too."""
        now = self._clock()
        with self._lock:
            if kind not in self._kinds and len(self._kinds) >= _MOST_KINDS:
                kind = ""
            left, at, omitted = self._kinds.get(kind, (self._at_once, now, 0))
            left = min(self._at_once, left + (now - at) * self._per_second)
            allowed = left >= 1
            rest = (left - 1, now, 0) if allowed else (left, now, omitted + 1)
            self._kinds[kind] = rest
        return omitted if allowed else None


def configure(
    settings: LogSettings, *, clock: Callable[[], float] = time.monotonic
) -> None:
    """Send our events and those of the libraries through one renderer."""
    level = _LEVELS[settings.level]
    shared: list[structlog.typing.Processor] = [
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
        structlog.processors.add_log_level,
        _add_lines_lost,
        _remember,
        structlog.processors.format_exc_info,
    ]
    own = _Allowance(at_once=1000, per_second=10, clock=clock)
    libraries = _Allowance(at_once=20, per_second=1, clock=clock)

    def limit(
        _: object, __: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        omitted = own.take(str(event["event"])[:_SHOWN_CHARACTERS])
        if omitted is None:
            raise structlog.DropEvent
        return {**event, "lines_omitted": omitted} if omitted else event

    def is_allowed(record: logging.LogRecord) -> bool:
        return libraries.take(record.name) is not None

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
        processors=[limit, *shared, *render],
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
    handler.addFilter(is_allowed)
    # They log every failed attempt with a traceback, which our counters and one line of
    # ours cover.
    for name in _LOQUACIOUS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    logging.basicConfig(
        level=max(level, logging.WARNING), handlers=[handler], force=True
    )


def recent() -> list[dict[str, Any]]:
    """The latest events of the log, newest first."""
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
    _RECENT.append(
        {
            "at": time.time(),
            "level": event["level"],
            "event": str(event["event"])[:_SHOWN_CHARACTERS],
            "detail": readable(event)[:_SHOWN_CHARACTERS],
            "model": event.get("model"),
        }
    )
    return event


def readable(event: Mapping[str, Any]) -> str:
    """Return the fields of an event for a reader: what it is about, then why."""
    fields = {
        key: value
        for key, value in event.items()
        if not key.startswith("_")
        and key not in {"event", "ts", "level", "exc_info", "lines_lost"}
        and value is not None
        and value != ""
    }
    if "models" in fields:
        fields.pop("number", None)
    named = str(event["event"]).split("_")
    facts = [
        _field("" if key in named else key, value)
        for key, value in fields.items()
        if key not in _SENTENCES
    ]
    said = [_shown(fields[key]) for key in _SENTENCES if key in fields]
    return "; ".join(filter(None, [", ".join(facts), *said]))


def _field(key: str, value: object) -> str:
    name, _, unit = key.rpartition("_")
    if unit in _UNITS:
        return f"{name.replace('_', ' ')} {_shown(value)} {_UNITS[unit]}"
    return f"{key.replace('_', ' ')} {_shown(value)}".strip()


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shown(one)}" for key, one in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return " and ".join(map(_shown, value))
    return str(value)


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
