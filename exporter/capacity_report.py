"""The part of a capacity search's JSON report that the sidecar shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from exporter.run_board import CapacityNotice

FORMAT: Final = "tritonwatch-load-capacity"
_MOST_BYTES: Final = 16 << 20


def capacity_of(file: str) -> CapacityNotice:
    """What the search found.

    Raises:
        ValueError: the file cannot be read, is no such report, or has no capacity that
            can be trusted; says which.
    """
    report = _read(file)
    if not isinstance(report, dict) or report.get("format") != FORMAT:
        raise ValueError(
            f"found {file!r}, which is no capacity report; want what `tritonwatch load "
            "capacity --json FILE` wrote"
        )
    if not report.get("valid") or not isinstance(report.get("capacity"), dict):
        raise ValueError(
            f"found {file!r}, whose search has no valid result "
            f"({report.get('conclusion')}); search again"
        )
    try:
        ends = report["capacity"]["requests_per_second"]
        estimate = float(ends["estimate"])
        return CapacityNotice(
            model=report["model"],
            slo=report["slo"],
            requests_per_second=estimate,
            low=float(ends["low"] or estimate),
            high=float(ends["high"] or estimate),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"found {file!r}, a capacity report that is not whole: {error}"
        ) from None


def _read(file: str) -> Any:
    try:
        with Path(file).open("rb") as opened:
            content = opened.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise ValueError(f"found {file!r} above 16 MiB; want a capacity report")
        return json.loads(content)
    except OSError as error:
        raise ValueError(f"found {file!r}: {error.strerror}; want a file") from None
    except (RecursionError, UnicodeDecodeError, json.JSONDecodeError):
        raise ValueError(f"found {file!r}, which is no JSON") from None
