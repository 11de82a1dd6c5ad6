"""Comparison of one data set with a reference: changes, confidence, and sensitivity.

A single test with a stated error rate. Too few data are an outcome of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from drift import limits
from drift.alarms.monitor import WEIGHTS, AlarmSettings, Monitor
from drift.comparison import Baseline
from drift.grid import ABOVE
from drift.projection import EVENTS
from drift.statistics import STATISTICS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from drift.alarms.explanation import Culprit
    from drift.comparison import Comparison
    from drift.reference import Profile
    from drift.statistics import Statistic
    from drift.window import Counts

FALSE_ALARMS: Final = 0.01
MIN_ROWS: Final = 30
# Where a shift by a whole standard deviation could remain undetected, "no drift" means nothing.
LARGEST_UNSEEN: Final = 1.0

_SIGNED_SHIFTS: Final = 10.0
_NINE_IN_TEN: Final = 1.2816

Outcome = Literal["drift", "no_drift", "not_enough_data"]
FeatureKind = Literal["numeric", "categorical", "joint"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True)


class Distance(_Record):
    """One distance, with its distribution without change for as many rows."""

    kind: str
    value: float
    null_mean: float
    null_bound: float

    @property
    def beyond(self) -> bool:
        """Return whether it exceeds the 99.9 % quantile without change."""
        return self.value > self.null_bound


class Share(_Record):
    """A share of rows in the reference and in the data; None where it is unknown."""

    name: str
    reference: float | None
    data: float | None


class ChangedPair(_Record):
    """Two columns, and their correlation in the reference and in the data."""

    columns: tuple[str, str]
    reference: float
    data: float


class FeatureFinding(_Record):
    """One feature. `changed` features are named by the e-BH procedure.

    `shift_sigma` and `scale_ratio` are of normal scores, None of categories; `bins` the
    coarse bins that changed most; `constant` that it varies in the reference alone, and
    `constant_at` the one value that it has or, of several so near each other, their range;
    `pairs`, of correlations that changed, the columns that changed most.
    """

    name: str
    kind: FeatureKind
    changed: bool
    log_evidence: float
    channel: str
    shift_sigma: float | None
    scale_ratio: float | None
    distances: tuple[Distance, ...]
    quality: tuple[Share, ...]
    bins: tuple[Share, ...]
    constant: bool
    constant_at: str = ""
    pairs: tuple[ChangedPair, ...] = ()


class Judgement(_Record):
    """The whole comparison; features by the strength of their evidence.

    `false_alarms` is the chance of "drift" for unchanged data, an upper bound that
    holds if `kept` (else `caveats` have the reasons). `detectable_sigma` is the
    shift of a middling feature that would be found nine times in ten; `blind_spots` are
    changes that would not be found.
    """

    outcome: Outcome
    false_alarms: float
    log_evidence: float
    log_threshold: float
    kept: bool
    caveats: tuple[str, ...]
    blind_spots: tuple[str, ...] = ()
    reference_rows: int
    rows: int
    detectable_sigma: float | None
    violations: tuple[str, ...]
    features: tuple[FeatureFinding, ...]

    @property
    def changed(self) -> tuple[FeatureFinding, ...]:
        """The features that are named."""
        return tuple(feature for feature in self.features if feature.changed)


def judge(
    profile: Profile,
    counts: Counts,
    *,
    false_alarms: float = FALSE_ALARMS,
) -> Judgement:
    """Compare `counts`, data counted over the profile's cells, with the profile once."""
    settings = AlarmSettings(windows_per_false_alarm=1.0 / false_alarms)
    monitor = Monitor(profile, settings)
    evaluation = monitor.evaluate(counts)
    detectable = _detectable(profile, counts, monitor.log_threshold)
    comparison = Baseline(profile).compare(counts)
    distances = _distances(comparison)
    constant = profile.constant(counts)
    places = {name: index for index, name in enumerate(profile.names)}
    outcome = _outcome(profile, counts, detectable, alarm=evaluation.alarm)
    caveats = (*profile.caveats, *limits.caveats_of_data(profile, counts))
    changed = evaluation.named if outcome == "drift" else frozenset()
    features = []
    for culprit in evaluation.features:
        index = places[culprit.feature]
        features.append(
            _feature(
                profile, counts, culprit, index, constant=bool(constant[index])
            ).model_copy(
                update={
                    "changed": index in changed,
                    "pairs": tuple(
                        ChangedPair(
                            columns=(pair.first, pair.second),
                            reference=pair.reference,
                            data=pair.current,
                        )
                        for pair in culprit.pairs
                        if index in changed
                    ),
                    "distances": distances[index],
                }
            )
        )
    return Judgement(
        outcome=outcome,
        false_alarms=false_alarms,
        log_evidence=evaluation.log_evidence,
        log_threshold=monitor.log_threshold,
        kept=not caveats,
        caveats=caveats,
        blind_spots=profile.blind_spots,
        reference_rows=profile.rows,
        rows=counts.rows,
        detectable_sigma=detectable,
        violations=tuple(
            f"{kind} {tensor}".strip() for kind, tensor in sorted(counts.violations)
        ),
        features=tuple(features),
    )


def _outcome(
    profile: Profile, counts: Counts, detectable: float | None, *, alarm: bool
) -> Outcome:
    if profile.rows < MIN_ROWS:
        return "not_enough_data"
    if alarm:
        return "drift"
    few = counts.rows < MIN_ROWS
    blind = detectable is None or detectable > LARGEST_UNSEEN
    return "not_enough_data" if few or blind else "no_drift"


def _detectable(profile: Profile, counts: Counts, log_threshold: float) -> float | None:
    """The median over features of the shift found with a chance of 0.9.

    With m the harmonic number of effective rows and L the log evidence one feature has
    to reach, a shift d gives d^2 m / 2 +- d sqrt(m): d = (sqrt(2 L) + 1.28) / sqrt(m).
    """
    rows = np.full(len(profile.schema.features), float(counts.rows))
    whole = np.full(len(profile.schema.features), float(profile.rows))
    spread = profile.dispersion.part(slice(rows.size))
    new = counts.finite[: rows.size] / (spread.shape * spread.stretch(rows))
    old = profile.counts.finite[: rows.size] / (spread.shape * spread.stretch(whole))
    usable = (new > 0) & (old > 0)
    if not usable.any():
        return None
    effective = (new * old / np.where(usable, new + old, 1.0))[usable]
    share = WEIGHTS[0] / _SIGNED_SHIFTS / len(profile.names)
    needed = np.sqrt(2.0 * (log_threshold - np.log(share))) + _NINE_IN_TEN
    return float(np.median(needed / np.sqrt(effective)))


def _distances(comparison: Comparison) -> list[tuple[Distance, ...]]:
    tables = [_table(statistic, comparison) for statistic in STATISTICS.values()]
    features = comparison.window.cells.shape[0]
    return [
        tuple(
            Distance(
                kind=kind,
                value=float(table[0, index]),
                null_mean=float(table[1, index]),
                null_bound=float(table[2, index]),
            )
            for kind, table in zip(STATISTICS, tables, strict=True)
            if np.isfinite(table[:, index]).all()
        )
        for index in range(features)
    ]


def _table(statistic: Statistic, comparison: Comparison) -> NDArray[np.float64]:
    null = statistic.null(comparison)
    return np.stack((statistic.distance(comparison), null.mean, null.bound))


def _feature(
    profile: Profile, counts: Counts, culprit: Culprit, index: int, *, constant: bool
) -> FeatureFinding:
    numeric = index < profile.schema.numeric
    ordered = numeric and bool(np.any(profile.projection.location[index] != 0))
    finite = bool(counts.finite[index] > 0)
    cell = int(np.argmax(counts.cells[index, : ABOVE + 1]))
    return FeatureFinding(
        name=culprit.feature,
        kind=_kind(profile, index),
        changed=False,
        log_evidence=culprit.log_evidence,
        channel=culprit.channel,
        shift_sigma=culprit.shift_sigma if ordered and finite else None,
        scale_ratio=culprit.scale_ratio if ordered and finite else None,
        distances=(),
        quality=tuple(
            Share(
                name=_event(name, _kind(profile, index)),
                reference=None if blind else _ratio(profile.counts, name, index),
                data=None if blind else _ratio(counts, name, index),
            )
            for name in EVENTS
            if numeric or name != "infinite"
            for blind in (name == "outside" and profile.is_open(index),)
        ),
        bins=tuple(
            Share(name=change.label, reference=change.before, data=change.since)
            for change in culprit.bins
        ),
        constant=constant,
        constant_at=profile.cell_label(index, cell, cell) if constant else "",
    )


def _kind(profile: Profile, index: int) -> FeatureKind:
    if profile.is_joint(index):
        return "joint"
    return "numeric" if index < profile.schema.numeric else "categorical"


def _event(name: str, kind: FeatureKind) -> str:
    if name != "outside":
        return name
    names = {"numeric": "out of range", "categorical": "unseen"}
    return names.get(kind, "unusual batches")


def _ratio(counts: Counts, name: str, index: int) -> float:
    events: NDArray[np.int64] = getattr(counts, name)
    return float(events[index]) / max(int(counts.values[index]), 1)
