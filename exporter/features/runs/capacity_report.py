"""The part of a capacity search's JSON report that the sidecar publishes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from exporter.features.runs.run_board import CapacityNotice

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT: Final = "tritonwatch-load-capacity"
_MAX_BYTES: Final = 16 << 20
_MAX_REASON: Final = 200
_FINDINGS: Final = ("no_rate_holds", "every_rate_holds")


def notice_of(report: Mapping[str, Any]) -> CapacityNotice:
    """The result of a search: a capacity, or the reason why there is none.

    Raises:
        KeyError, TypeError, ValueError: the report is incomplete.
    """
    common = {"model": report["model"], "slo": report["slo"]}
    conclusion = str(report.get("conclusion", ""))
    if not report["valid"]:
        reason = "; ".join(report.get("reasons", ())) or conclusion
        return _without_capacity(common, "invalid", reason)
    if report.get("ending") in _FINDINGS:
        return _without_capacity(common, report["ending"], conclusion)
    if report["capacity"] is None:
        return _without_capacity(common, "invalid", conclusion)
    ends = report["capacity"]["requests_per_second"]
    if ends["low"] is None or ends["high"] is None:
        return _without_capacity(common, "invalid", conclusion)
    found_at = None
    if "started_at" in report:
        found_at = float(report["started_at"]) + float(report["spent_seconds"])
    return CapacityNotice(
        **common,
        requests_per_second=ends["estimate"],
        low=ends["low"],
        high=ends["high"],
        effective_requests=report["capacity"].get("effective_requests"),
        found_at=found_at,
    )


def valid_capacity(file: str) -> CapacityNotice:
    """The capacity in the report `file`.

    Raises:
        ValueError: the file cannot be read, is not a capacity report, or has no valid capacity.
    """
    report = _read(file)
    if not isinstance(report, dict) or report.get("format") != FORMAT:
        raise ValueError(
            f"{file!r} is not a capacity report; want a file written by `tritonwatch "
            "load capacity --json FILE`"
        )
    try:
        notice = notice_of(report)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{file!r} is an incomplete capacity report: {error!r}"
        ) from None
    if notice.verdict != "valid":
        raise ValueError(
            f"{file!r} has no valid capacity ({notice.reason}); repeat the search"
        )
    return notice


def _without_capacity(
    common: dict[str, Any], verdict: Any, reason: str
) -> CapacityNotice:
    if len(reason) > _MAX_REASON:
        reason = reason[: _MAX_REASON - 1] + "…"
    return CapacityNotice(**common, verdict=verdict, reason=reason)


def _read(file: str) -> Any:
    try:
        with Path(file).open("rb") as opened:
            content = opened.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise ValueError(f"{file!r} is larger than 16 MiB; want a capacity report")
        return json.loads(content)
    except OSError as error:
        raise ValueError(f"cannot read {file!r}: {error.strerror}") from None
    except (RecursionError, UnicodeDecodeError, json.JSONDecodeError):
        raise ValueError(f"{file!r} is not valid JSON") from None
