"""Results of the drift watches: samples, and the explanation of alarms in /api/v1/status."""

from __future__ import annotations

import math
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from drift.column_ring import VIOLATIONS
from drift.features import RESERVED
from drift.grid import OTHER, UNSEEN
from exporter import catalogue
from exporter.samples import Sample
from pages.units import percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from drift.alarms.explanation import Culprit
    from drift.reference import Profile
    from exporter.features.drift.drift_subject import Subject
    from exporter.features.drift.drift_watch import Watch, WindowResult

_MOST_LABEL: Final = 80
_REFERENCE_DIGITS: Final = 12


def of_model(model: str, subjects: Sequence[Subject]) -> Iterator[Sample]:
    """Yield the few series of a model, over both of its sides."""
    for subject in subjects:
        yield from _of_side(subject)
    watches = [subject.watch for subject in subjects if subject.watch is not None]
    judged = [watch for watch in watches if watch.result is not None]
    if judged:
        since = [
            watch.statistics.alarm_since
            for watch in judged
            if watch.statistics.alarm_since is not None
        ]
        yield Sample(catalogue.MODEL_DRIFT_ALARM, bool(since), (model,))
        if since:
            yield Sample(catalogue.MODEL_DRIFT_START, min(since), (model,))
    if watches:
        alarms = sum(watch.statistics.alarms for watch in watches)
        yield Sample(catalogue.MODEL_DRIFT_ALARMS, alarms, (model,))
    yield from _violations(model, watches)
    yield from _outlook(model, subjects)


def _of_side(subject: Subject) -> Iterator[Sample]:
    key = (subject.model, subject.settings.watched)
    yield Sample(catalogue.DRIFT_STATE, 1, (*key, subject.state))
    if subject.learner is not None:
        yield Sample(catalogue.DRIFT_REFERENCE_ROWS, subject.learner.rows, key)
    if (watch := subject.watch) is None:
        return
    if subject.saved_at is not None:
        yield Sample(catalogue.DRIFT_SAVED, subject.saved_at, key)
    if subject.save_by is not None:
        yield Sample(catalogue.DRIFT_SAVE_BY, subject.save_by, key)
    yield Sample(catalogue.DRIFT_REFERENCE_ROWS, watch.profile.rows, key)
    yield Sample(catalogue.DRIFT_PROMISE, not watch.profile.caveats, key)
    yield Sample(catalogue.DRIFT_ROWS, watch.statistics.rows, key)
    yield Sample(catalogue.DRIFT_WINDOWS, watch.statistics.windows, key)
    if (result := watch.result) is None:
        return
    yield Sample(catalogue.DRIFT_WINDOW_ROWS, result.total.rows, key)
    yield Sample(catalogue.DRIFT_WINDOW_TIMESTAMP, result.closed_at, key)
    yield Sample(catalogue.MODEL_DRIFT_THRESHOLD, result.verdict.log_threshold, key)
    if math.isfinite(result.verdict.log_evidence):
        yield Sample(catalogue.MODEL_DRIFT_EVIDENCE, result.verdict.log_evidence, key)


def _violations(model: str, watches: Sequence[Watch]) -> Iterator[Sample]:
    # All from the beginning at 0: a rise from absent would not be seen.
    for kind in VIOLATIONS if watches else ():
        number = sum(watch.violations[kind] for watch in watches)
        yield Sample(catalogue.SCHEMA_VIOLATIONS, number, (model, kind))


def _outlook(model: str, subjects: Sequence[Subject]) -> Iterator[Sample]:
    found = []
    for subject in subjects:
        for signal, forecast in subject.outlooks.forecasts.items():
            name = f"{signal} of {subject.settings.watched}"
            outlook = forecast.outlook.value
            yield Sample(catalogue.RETRAIN_OUTLOOK, 1, (model, name, outlook))
        if (eta := subject.outlooks.eta) is not None:
            found.append(eta)
    if found:
        first = min(found, key=lambda eta: eta.median)
        for bound in ("lower", "median", "upper"):
            yield Sample(catalogue.RETRAIN_ETA, getattr(first, bound), (model, bound))
        worth = first.effective_periods
        yield Sample(catalogue.RETRAIN_ETA_EFFECTIVE, worth, (model,))


def of_features(subject: Subject) -> Iterator[Sample]:
    """The series of a side's features, those with an alarm first."""
    watch = subject.watch
    if watch is None:
        return
    if watch.result is not None:
        shown = _shown(watch, watch.result, subject.settings.max_features)
        constant = watch.profile.constant(watch.result.total)
        for feature in shown:
            yield from _quality(subject.model, watch.profile, watch.result, feature)
            label = (subject.model, watch.profile.names[feature])
            yield Sample(catalogue.FEATURE_CONSTANT, bool(constant[feature]), label)
            yield from _evidence(subject.model, watch.profile, watch.result, feature)
        for feature in shown:
            yield from _scores(subject, watch, watch.result, feature)
    if subject.settings.export_bins:
        yield from _bins(subject, watch)


def _shown(watch: Watch, result: WindowResult, most: int) -> list[int]:
    names = watch.profile.names
    if len(names) <= most:
        return list(range(len(names)))
    alarmed = {culprit.feature for culprit in result.verdict.culprits}
    order = sorted(range(len(names)), key=lambda place: names[place] not in alarmed)
    return sorted(order[:most])


def _quality(
    model: str, profile: Profile, result: WindowResult, feature: int
) -> Iterator[Sample]:
    if profile.is_joint(feature):
        return
    label = (model, profile.names[feature])
    total = result.total
    rows = max(total.rows, 1)
    numeric = feature < profile.schema.numeric
    yield Sample(catalogue.FEATURE_MISSING, float(total.missing[feature]) / rows, label)
    outside = float(total.outside[feature]) / rows
    if numeric:
        infinite = float(total.infinite[feature]) / rows
        yield Sample(catalogue.FEATURE_INFINITE, infinite, label)
        yield Sample(catalogue.FEATURE_OUT_OF_RANGE, outside, label)
    elif not profile.is_open(feature):
        yield Sample(catalogue.FEATURE_UNSEEN, outside, label)


def _evidence(
    model: str, profile: Profile, result: WindowResult, feature: int
) -> Iterator[Sample]:
    name = profile.names[feature]
    evidence = float(result.verdict.features[feature])
    if math.isfinite(evidence):
        yield Sample(catalogue.FEATURE_DRIFT_EVIDENCE, evidence, (model, name))
    alarmed = result.verdict.alarm and any(
        culprit.feature == name for culprit in result.verdict.culprits
    )
    yield Sample(catalogue.FEATURE_DRIFT_ALARM, alarmed, (model, name))


def _scores(
    subject: Subject, watch: Watch, result: WindowResult, feature: int
) -> Iterator[Sample]:
    name = watch.profile.names[feature]
    for score in result.scores:
        value = float(score.distance[feature])
        if not math.isfinite(value):
            continue
        label = (subject.model, name, score.name)
        yield Sample(catalogue.FEATURE_DRIFT_SCORE, value, label)
        for bound, null in (("mean", score.null.mean), ("upper", score.null.bound)):
            if math.isfinite(float(null[feature])):
                yield Sample(
                    catalogue.FEATURE_DRIFT_NULL, float(null[feature]), (*label, bound)
                )
        if subject.settings.classic_thresholds and score.threshold is not None:
            beyond = value >= score.threshold
            yield Sample(catalogue.FEATURE_DRIFT_CLASSIC, beyond, label)


def _bins(subject: Subject, watch: Watch) -> Iterator[Sample]:
    reference_id = watch.profile.fingerprint[:_REFERENCE_DIGITS]
    for feature, name in enumerate(watch.profile.names):
        if not any(fnmatchcase(name, p) for p in subject.settings.export_bins):
            continue
        used = int(watch.profile.projection.used[feature])
        labels = bin_labels(watch.profile, feature)
        reference = watch.baseline.bins[feature, :used] + 0.5
        shares = reference / reference.sum()
        for place in range(used):
            key = (subject.model, name, labels[place], reference_id)
            count = float(watch.coarse[feature, place])
            yield Sample(catalogue.FEATURE_OBSERVATIONS, count, key)
            yield Sample(catalogue.FEATURE_REFERENCE, float(shares[place]), key)


def bin_labels(profile: Profile, feature: int) -> list[str]:
    """A name for each coarse bin of a feature, the same wherever the reference is."""
    cells = profile.projection.bins[feature]
    labels: list[str] = []
    for place in range(int(profile.projection.used[feature])):
        mine = np.flatnonzero(cells == place)
        label = _bin_label(profile, feature, [int(cell) for cell in mine])
        short = label[:_MOST_LABEL]
        labels.append(f"{short} ({place})" if short in labels else short)
    return labels


def _bin_label(profile: Profile, feature: int, cells: Sequence[int]) -> str:
    if feature < profile.schema.numeric:
        return profile.bin_label(feature, cells) if cells else "none"
    values = profile.categories[feature - profile.schema.numeric].values
    known = [values[cell] for cell in cells if cell < len(values)]
    rest = OTHER in cells or UNSEEN in cells
    parts = known if len(known) < 3 else [f"{known[0]} … {known[-1]}"]  # noqa: PLR2004
    return " or ".join([*parts, *(["other"] if rest or not known else [])])


_WORST: Final = 10
_WORTH_A_WORD: Final = 0.1


def document(subject: Subject) -> dict[str, Any]:
    """Return JSON-able values; unknown ones are None."""
    found: dict[str, Any] = {
        "model": subject.model,
        "side": subject.settings.watched,
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
