"""The demo's output: a table that is drawn again each second, or lines in a pipe."""

from __future__ import annotations

import shlex
import shutil
import textwrap
import time
from collections import deque
from typing import TYPE_CHECKING, Final, TextIO

from exporter.config.logs import readable

if TYPE_CHECKING:
    from exporter.demo.demo_readings import ModelReading, Reading

WIDTH: Final = 100
"""Maximum length of a line of the table in characters."""
_EVERY_SECONDS: Final = 10.0
_EVENTS: Final = 8
_COLUMNS: Final = (
    ("MODEL", 14), ("STATE", 8), ("REQ/S", 6), ("P50 ms [95 %]", 19), ("TAIL ms [95 %]", 23),
    ("ACCURACY", 9), ("DRIFT", 14),
)  # fmt: skip


def log_text(line: str) -> str:
    """Return a line of the sidecar's log (logfmt) for a reader; others as they are."""
    try:
        fields = dict(part.split("=", 1) for part in shlex.split(line))
    except ValueError:
        return line.strip()
    if "event" not in fields:
        return line.strip()
    return f"{fields['event'].replace('_', ' ')}: {readable(fields)}"


class Screen:
    """Shows readings and events on `out`."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._table = out.isatty()
        self._drawn = 0
        self._events: deque[str] = deque(maxlen=_EVENTS)
        self._states: dict[str, str] = {}
        self._shown_at = float("-inf")

    def event(self, text: str) -> None:
        """Print an event with the time, one line for each line of its text."""
        clock = time.strftime("%H:%M:%S")
        for line in text.splitlines():
            if self._table:
                self._events.extend(
                    textwrap.wrap(
                        f"{clock}  {line}", _width(), subsequent_indent=" " * 10
                    )
                )
            else:
                self._print(f"{clock}  {line}")

    def show(self, reading: Reading, now: float) -> None:
        """Show a reading; in a pipe every ten seconds, and models whose state changed."""
        if self._table:
            self._draw(reading)
            return
        clock = time.strftime("%H:%M:%S")
        due = now - self._shown_at >= _EVERY_SECONDS
        if due:
            self._shown_at = now
            for line in (reading.summary, reading.energy, *reading.streamed):
                self._print(f"{clock}  {line}")
        for model in reading.models:
            if due or self._states.get(model.name, model.state) != model.state:
                self._print(f"{clock}  {_line(model)}")
            self._states[model.name] = model.state

    def _print(self, line: str) -> None:
        print(line, file=self._out, flush=True)

    def _draw(self, reading: Reading) -> None:
        width = _width()
        lines = [reading.summary, reading.energy, *reading.streamed, ""]
        lines.append(_row([name for name, _ in _COLUMNS]))
        lines += [
            _row([m.name, m.state, m.rate, m.median, m.tail, m.accuracy, m.drift])
            for m in reading.models
        ]
        lines += ["", *self._events]
        # Back to the first line of the last drawing, and clear what is below.
        back = f"\x1b[{self._drawn}F\x1b[J" if self._drawn else ""
        self._out.write(back + "".join(f"{line[:width]}\n" for line in lines))
        self._out.flush()
        self._drawn = len(lines)


def _width() -> int:
    return min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)


def _row(cells: list[str]) -> str:
    sized = zip(cells, _COLUMNS, strict=True)
    return " ".join(f"{cell[:size]:<{size}}" for cell, (_, size) in sized).rstrip()


def _line(model: ModelReading) -> str:
    parts = [
        f"{model.name:<14} {model.state:<8}" + (model.rate and f" {model.rate:>3}/s"),
        f"{model.tail} ms" if model.tail.endswith("]") else f"tail {model.tail}",
        f"accuracy {model.accuracy}" if model.accuracy else "",
        f"drift {model.drift}" if model.drift else "",
    ]
    return "  ".join(part for part in parts if part)
