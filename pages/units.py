"""Numbers as people read them."""

from __future__ import annotations

import math
from typing import Any

_MILLI = 1e-3


def duration(seconds: float | None) -> str:
    """A duration in the unit that fits."""
    if seconds is None or not math.isfinite(seconds):
        return "unknown"
    if abs(seconds) < _MILLI:
        return f"{seconds * 1e6:.3g} µs"
    return f"{seconds * 1e3:.4g} ms" if abs(seconds) < 1 else f"{seconds:.4g} s"


def percent(ratio: float | None) -> str:
    """A share in percent."""
    return "unknown" if ratio is None else f"{ratio:.3%}"


def number(value: float | None) -> str:
    """Four digits."""
    return "unknown" if value is None else f"{value:.4g}"


def fact(value: Any) -> str:
    """Any value on one line."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {fact(item)}" for key, item in value.items())
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
