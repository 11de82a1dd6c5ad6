"""Explanation of a drift alarm, in words and numbers: a part of /api/v1/status."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from drift.features import RESERVED
from pages.units import percent

if TYPE_CHECKING:
    from drift.alarms.explanation import Culprit
    from exporter.features.drift.drift_subject import Subject
    from exporter.features.drift.drift_watch import Watch, WindowResult

_WORST: Final = 10
_WORTH_A_WORD: Final = 0.1


def document(subject: Subject) -> dict[str, Any]:
    """Return JSON-able values; unknown ones are None."""
    found: dict[str, Any] = {
        "model": subject.model,
        "side": subject.settings.side,
        "state": subject.state,
        "problems": list(subject.problems),
        "alarm": None,
        "since_timestamp_seconds": None,
        "changes": [],
        "worst": [],
        "caveats": [],
        "blind_spots": [],
        "retrain": _retrain(subject),
    }
    if subject.learner is not None:
        found["reference_rows"] = subject.learner.rows
    if (watch := subject.watch) is None:
        return found
    found["reference_rows"] = watch.profile.rows
    found["reference"] = watch.profile.provenance.source
    found["caveats"] = list(watch.profile.caveats)
    found["blind_spots"] = list(watch.profile.blind_spots)
    found["rows"] = watch.statistics.rows
    found["violations"] = dict(watch.violations)
    if (result := watch.result) is not None:
        found |= _judged(watch, result)
    return found


def _judged(watch: Watch, result: WindowResult) -> dict[str, Any]:
    verdict = result.verdict
    return {
        "alarm": verdict.alarm,
        "since_timestamp_seconds": watch.statistics.alarm_since,
        "changes": [_change(culprit) for culprit in verdict.culprits],
        "worst": _worst(watch, result),
        "window_rows": result.total.rows,
        "window_timestamp_seconds": result.closed_at,
        "evidence": _finite(verdict.log_evidence),
        "threshold": verdict.log_threshold,
        "promise_kept": verdict.kept,
    }


def _change(culprit: Culprit) -> dict[str, Any]:
    return {
        "feature": culprit.feature,
        "kind": culprit.channel,
        "says": sentence(culprit),
        "shift_sigma": _finite(culprit.shift_sigma),
        "scale_ratio": _finite(culprit.scale_ratio),
        "rates": [
            {"of": event, "before": before, "since": since}
            for event, before, since in culprit.rates
        ],
        "bins": [
            {"bin": change.label, "before": change.before, "since": change.since}
            for change in culprit.bins
        ],
        "pairs": [
            {
                "columns": [pair.first, pair.second],
                "before": pair.reference,
                "since": pair.current,
            }
            for pair in culprit.pairs
        ],
    }


def sentence(culprit: Culprit) -> str:
    """Return the feature, its kind of change and the amount, in a sentence."""
    name = culprit.feature
    if name.startswith(RESERVED):
        _, before, since = culprit.rates[-1]
        pairs = "".join(f"; {pair}" for pair in culprit.pairs)
        return (
            f"{name}: correlations between columns differ from the reference in "
            f"{percent(since)} of batches, usually in {percent(before)}{pairs}"
        )
    for event, before, since in culprit.rates:
        if event == culprit.channel:
            return f"{name}: {event} rose from {percent(before)} to {percent(since)} of rows"
    if culprit.channel in {"location", "scale"}:
        return f"{name}: {' and '.join(_moves(culprit))}"
    if not culprit.bins:
        return f"{name}: its distribution has another shape"
    most = culprit.bins[0]
    return f"{name}: {most.label} went from {percent(most.before)} to {percent(most.since)}"


def _moves(culprit: Culprit) -> list[str]:
    """A shift and a change of spread, as far as they are worth a word."""
    shift, ratio = culprit.shift_sigma, culprit.scale_ratio
    way = "up" if shift > 0 else "down"
    moved = f"shifted {way} by {abs(shift):.2f} sigma"
    spread = f"spread times {ratio:.2f}"
    moves = [
        *([moved] if abs(shift) >= _WORTH_A_WORD else []),
        *([spread] if abs(ratio - 1.0) >= _WORTH_A_WORD else []),
    ]
    return moves or [moved if culprit.channel == "location" else spread]


def _worst(watch: Watch, result: WindowResult) -> list[dict[str, Any]]:
    """The features with most evidence, with their distances."""
    evidence = result.verdict.features
    names = watch.profile.names
    order = sorted(range(len(names)), key=lambda place: -float(evidence[place]))
    return [
        {
            "feature": names[place],
            "evidence": _finite(float(evidence[place])),
            "scores": {
                score.name: {
                    "value": _finite(float(score.distance[place])),
                    "null_mean": _finite(float(score.null.mean[place])),
                    "null_upper": _finite(float(score.null.bound[place])),
                }
                for score in result.scores
            },
        }
        for place in order[:_WORST]
    ]


def _retrain(subject: Subject) -> dict[str, Any]:
    eta = subject.outlooks.eta
    return {
        "outlooks": {
            signal: forecast.outlook.value
            for signal, forecast in subject.outlooks.forecasts.items()
        },
        "seconds": None
        if eta is None
        else {
            "lower": _finite(eta.lower),
            "median": _finite(eta.median),
            "upper": _finite(eta.upper),
            "effective_periods": _finite(eta.effective_periods),
        },
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
