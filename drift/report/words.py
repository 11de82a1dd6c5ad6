"""Sentences of the report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pages import units

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drift.judgement import FeatureFinding, Judgement

OUTCOMES: Final = {
    "drift": "Drift",
    "no_drift": "No drift",
    "not_enough_data": "Not enough data",
}
_CHANNELS: Final = {
    "location": "its values shifted",
    "scale": "its spread changed",
    "shape": "its distribution has another shape",
    "range": "its distribution is unlike every stretch of the reference",
    "missing": "more values are missing",
    "infinite": "more values are infinite",
}
_NOTABLE_SHIFT: Final = 0.02
_NOTABLE_SCALE: Final = 0.02


def number_of_features(found: Judgement) -> str:
    """Return the number of features in words; the test of correlations is none."""
    number = sum(feature.kind != "joint" for feature in found.features)
    return f"{number} feature{'s' * (number != 1)}"


def headline(found: Judgement) -> str:
    """Return the outcome in a sentence."""
    features = number_of_features(found)
    if found.outcome == "drift":
        count = sum(feature.kind != "joint" for feature in found.changed)
        correlated = len(found.changed) > count
        if not count and correlated:
            return f"Drift in the correlations between {features}."
        more = " and in the correlations between them" * correlated
        return f"Drift in {count} of {features}{more}."
    if found.outcome == "no_drift":
        return f"No drift in {features}."
    return "Not enough data to decide."


def promise(found: Judgement) -> str:
    """Return the error rate, and the smallest change that would have been seen."""
    rate = f"Unchanged data are reported as drift with a probability of at most {found.false_alarms:.3g}"
    held = "" if found.kept else ", if the reference met its conditions (see below)"
    if found.detectable_sigma is None:
        return f"{rate}{held}. These data are too few to detect any drift."
    return (
        f"{rate}{held}. A shift of a typical feature by {found.detectable_sigma:.2g} "
        "standard deviations would be detected nine times out of ten."
    )


def kind_of_change(feature: FeatureFinding) -> str:
    """Return the kind of change that is largest, in words."""
    if feature.constant:
        several = feature.constant_at[:1] in {"[", "("}
        return f"{'all values lie in' if several else 'all values are'} {feature.constant_at}"
    if feature.kind == "joint":
        return "correlations between columns changed"
    if feature.channel == "outside":
        if feature.kind == "numeric":
            return "more values are outside the reference's range"
        return "more values are absent from the reference"
    return _CHANNELS[feature.channel]


def sizes(feature: FeatureFinding) -> Iterator[str]:
    """Return how much, in the units of each kind of change."""
    if feature.shift_sigma is not None and abs(feature.shift_sigma) > _NOTABLE_SHIFT:
        yield f"shift {feature.shift_sigma:+.2f} standard deviations"
    if (
        feature.scale_ratio is not None
        and abs(feature.scale_ratio - 1) > _NOTABLE_SCALE
    ):
        yield f"scale x {feature.scale_ratio:.2f}"
    for share in feature.quality:
        before, now = percent(share.reference), percent(share.data)
        if before != now:
            yield f"{share.name} {before} → {now}"
    for pair in feature.pairs:
        columns = " and ".join(pair.columns)
        yield f"correlation of {columns} {pair.reference:z.2f} → {pair.data:z.2f}"


def percent(share: float | None) -> str:
    """A share of rows."""
    if share is None:
        return "unknown"
    if 0 < share < 0.0005:  # noqa: PLR2004 - less would read as 0.0 %
        return "< 0.1 %"
    return units.percent(round(share, 3))
