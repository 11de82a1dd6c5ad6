"""Numbers and times as people read them."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_BYTES: Final = "_bytes"
_MILLI = 1e-3
_LEAST_PERCENT = 0.0001


def instant(unix_seconds: float) -> str:
    """A date and time."""
    return f"{datetime.fromtimestamp(unix_seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def duration(seconds: float | None) -> str:
    """A duration in the unit that fits."""
    if seconds is None or not math.isfinite(seconds):
        return "unknown"
    if abs(seconds) < _MILLI:
        return f"{seconds * 1e6:.3g} µs"
    return f"{seconds * 1e3:.4g} ms" if abs(seconds) < 1 else f"{seconds:.4g} s"


def percent(ratio: float | None, sign: str = "") -> str:
    """A share in percent; `sign` is "+" for changes.

    Three digits of the share, or of the rest to a whole where that is less: 99.953 % are
    not 100 %. At most four decimals.
    """
    if ratio is None or not math.isfinite(ratio):
        return "unknown"
    rest = 100.0 * (min(abs(ratio), abs(1.0 - ratio)) or 1.0)
    if rest < _LEAST_PERCENT:
        return (
            f"> {100 - _LEAST_PERCENT} %" if round(ratio) else f"< {_LEAST_PERCENT} %"
        )
    decimals = min(max(2 - math.floor(math.log10(rest)), 0), 4)
    shown = f"{100.0 * ratio + 0.0:{sign}.{decimals}f}"  # not "-0"
    return f"{shown.rstrip('0').rstrip('.') if decimals else shown} %"


def number(value: float | None) -> str:
    """Four digits."""
    return "unknown" if value is None else f"{value:.4g}"


def facts(values: Iterable[tuple[str, Any]]) -> list[tuple[str, str]]:
    """Return names and values, each on one line; numbers of bytes in MiB or GiB."""
    return [
        (name.removesuffix(_BYTES), size(value))
        if name.endswith(_BYTES)
        else (name, fact(value))
        for name, value in values
    ]


def size(count_bytes: float) -> str:
    """A size in memory."""
    mebibytes = count_bytes / (1 << 20)
    if mebibytes < 1 << 10:
        return f"{mebibytes:.4g} MiB"
    return f"{mebibytes / (1 << 10):.3g} GiB"


def fact(value: Any) -> str:
    """Any value on one line."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {text}" for name, text in facts(value.items()))
    if isinstance(value, list | tuple):
        return ", ".join(map(fact, value))
    if isinstance(value, float):
        return f"{value:.6g}"
    return "none" if value is None else str(value)


def capital(sentence: str) -> str:
    """The sentence with a capital letter at its beginning."""
    return sentence[:1].upper() + sentence[1:]


def or_nan(value: float | None) -> float:
    """The value; NaN, which a plot leaves out, where it is unknown."""
    return math.nan if value is None else value
