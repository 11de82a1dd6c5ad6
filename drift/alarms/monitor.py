"""One model's alarm: windows of counts in, verdicts out."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from drift.alarms import likelihood_ratios
from drift.alarms.explanation import (
    CHANNELS,
    Culprit,
    e_benjamini_hochberg,
    explain,
)
from drift.alarms.ledger import RECENT, Ledger, Sums, pack
from drift.errors import UNREADABLE, StateError
from drift.grid import feature_slices
from drift.joint_counting import Pair
from drift.projection import at_risk

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from drift.joint_counting import JointSums
    from drift.reference import Profile
    from drift.window import Counts

    Floats = NDArray[np.float64]

WEIGHTS: Final = (0.3, 0.2, 0.2, 0.1, 0.1, 0.1, 0.1)

# The evidence of this many features, all starts and sizes of change, takes 2 MB.
_TOGETHER: Final = 32
_RANGE_STRETCHES: Final = 2
"""Stretches outside all that the reference showed before it is drift: one may be a
storm."""
_SHAPE: Final = CHANNELS.index("shape")
_RANGE: Final = CHANNELS.index("range")
_CLEAR_WINDOWS: Final = 2
"""Fewest windows that end an alarm: one may be unusual."""


@dataclass(frozen=True, slots=True)
class AlarmSettings:
    """Settings of an alarm: its false-alarm rate, and changes too small to matter.

    `windows_per_false_alarm` is the main setting: the mean number of windows between
    false alarms of the whole model is at least this (a month of ten-minute windows is
    4,320). `margin_sigma` is the largest shift that needs no alarm, in standard
    deviations of the normal score; `margin_rate` the same for rates, as a share of
    rows. `false_share` is the accepted share of features that are named wrongly.
    """

    windows_per_false_alarm: float = 4320.0
    margin_sigma: float = 0.0
    margin_rate: float = 0.0
    false_share: float = 0.1

    def __post_init__(self) -> None:
        if not self.windows_per_false_alarm > 1:
            raise StateError(
                f"windows_per_false_alarm is {self.windows_per_false_alarm}; "
                "it must be above 1"
            )
        if not 0 < self.false_share < 1:
            raise StateError(
                f"false_share is {self.false_share}; it must lie in (0, 1)"
            )
        if min(self.margin_sigma, self.margin_rate) < 0:
            raise StateError("a margin is negative; use 0 for none")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one window.

    `raised` is true in the window that starts an alarm: `log_evidence` reached
    `log_threshold`. `alarm` stays true until the latest rows, as many as raised it and two
    windows at least, show no change. During an alarm
    `log_evidence` is that of the latest windows alone. `features` (features,) is each
    feature's own log likelihood ratio. `kept` is false where the false-alarm rate is not
    guaranteed, see `Profile.caveats`. `since_windows` counts back to where the change
    most likely began, this window included; 0 without an alarm.
    """

    window: int
    log_evidence: float
    log_threshold: float
    alarm: bool
    raised: bool
    features: Floats
    culprits: tuple[Culprit, ...] = ()
    since_windows: int = 0
    kept: bool = True


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One evaluation: the evidence of every feature, the strongest first.

    `named` are the places in the schema of those that e-BH names.
    """

    log_evidence: float
    alarm: bool
    features: tuple[Culprit, ...]
    named: frozenset[int]


class Monitor:
    """Evidence that a model's data changed, kept over windows and restarts."""

    def __init__(self, profile: Profile, settings: AlarmSettings | None = None) -> None:
        self._profile = profile
        self._settings = settings or AlarmSettings()
        self._projection = profile.projection
        self._tilts = likelihood_ratios.score_tilts(
            self._projection, profile.counts.cells
        )
        self._log_weights = _log_weights(profile)
        self._spreads = {
            part.start: profile.dispersion.part(part) for part in self._parts()
        }
        self._ledger = Ledger(pack(profile.summary))
        self._since_clear = 0
        self._alarm_start: int | None = None
        self._clear_rows = 0.0
        self._culprits: tuple[Culprit, ...] = ()
        self._joint: deque[JointSums] = deque(maxlen=RECENT)
        self._rows_of_hours: dict[int, int] = {}

    @property
    def log_threshold(self) -> float:
        """Log of the evidence at which an alarm is raised."""
        return float(np.log(self._settings.windows_per_false_alarm))

    def update(self, counts: Counts) -> Verdict:
        """Add a closed window; one without rows changes nothing."""
        if counts.rows == 0:
            return self._verdict(-np.inf, self._nothing(), raised=False)
        self._ledger.push(self._packed(counts))
        self._remember(counts.hours)
        if counts.joint is not None:
            self._joint.append(counts.joint)
        if self._ledger.frozen:
            return self._while_alarmed()
        self._since_clear += 1
        features = self._of_all_starts()
        total = _of_model(features)
        if total < self.log_threshold:
            return self._verdict(total, features, raised=False)
        return self._raise(features, total)

    def evaluate(self, counts: Counts) -> Evaluation:
        """Return the evidence of one stretch of rows alone; the monitor does not change.

        Without change the evidence of a single call averages at most 1, so it reaches
        `log_threshold` with a probability of at most 1 / `windows_per_false_alarm`.
        """
        ledger = Ledger(pack(self._profile.summary))
        ledger.push(self._packed(counts))
        weighted = self._weighted(ledger, 0)
        features = likelihood_ratios.log_sum(weighted, axis=-1)
        total = _of_model(features)
        named = e_benjamini_hochberg(features, self._settings.false_share)
        if total >= self.log_threshold and not named:
            named = [int(np.argmax(features))]
        order = np.argsort(-features, kind="stable")
        sides = _sides_at(ledger, 0)
        joint = [] if counts.joint is None else [counts.joint]
        every = tuple(
            replace(culprit, log_evidence=float(features[index]))
            for index, culprit in zip(
                order.tolist(),
                explain(self._profile, *sides, weighted, order.tolist(), joint),
                strict=True,
            )
        )
        return Evaluation(total, total >= self.log_threshold, every, frozenset(named))

    def log_ratios(self) -> Floats:
        """Log LR of every start, feature and channel: (starts, features, CHANNELS)."""
        found = [self._ratios(self._ledger, part) for part in self._parts()]
        return np.concatenate(found, axis=1)

    def _parts(self) -> Iterator[slice]:
        return feature_slices(len(self._profile.names), _TOGETHER)

    def _of_all_starts(self) -> Floats:
        """Each feature's log evidence, over all starts and channels, (features,)."""
        found = []
        for part in self._parts():
            weighted = self._ratios(self._ledger, part) + self._log_weights[part]
            sums = likelihood_ratios.log_sum(weighted, axis=0)
            found.append(likelihood_ratios.log_sum(sums, axis=-1))
        return np.concatenate(found)

    def _weighted(self, ledger: Ledger, start: int) -> Floats:
        """Log evidence for one start, (features, CHANNELS)."""
        found = [self._ratios(ledger, part, [start])[0] for part in self._parts()]
        return np.concatenate(found) + self._log_weights

    def _ratios(
        self, ledger: Ledger, part: slice, starts: Sequence[int] | None = None
    ) -> Floats:
        before, after = ledger.sides(part, starts)
        spread, settings = self._spreads[part.start], self._settings
        longer, long = spread.stretch(before.rows), spread.stretch(after.rows)
        largest = spread.largest_shifts
        ratios = np.empty((*after.finite.shape, len(CHANNELS)))
        for index, (name, phi) in enumerate(
            (("location", spread.location), ("scale", spread.scale))
        ):
            old, new = phi * longer, phi * long
            ratios[..., index] = likelihood_ratios.of_mean(
                (before.finite / old, getattr(before, name) / old),
                (after.finite / new, getattr(after, name) / new),
                likelihood_ratios.Tilts(
                    self._tilts[index].up[part], self._tilts[index].down[part]
                ),
                margin=settings.margin_sigma,
                largest=largest[name],
            )
        old, new = (spread.shape * side for side in (longer, long))
        ratios[..., 2] = likelihood_ratios.of_shape(
            before.bins / old[..., None],
            after.bins / new[..., None],
            self._projection.used[part],
            half=0.5 / old[..., None],
            margin=settings.margin_sigma,
        )
        old, new = (spread.events * side[..., None] for side in (longer, long))
        ratios[..., 3:_RANGE] = likelihood_ratios.of_rate(
            (at_risk(before.trials, before.events) / old, before.events / old),
            (at_risk(after.trials, after.events) / new, after.events / new),
            margin=settings.margin_rate,
        )
        # Not extrapolated: the stretches that it is compared with are of the same length.
        within = likelihood_ratios.of_range(
            after.bins / spread.shape[:, None], spread.shown
        )
        long_enough = after.rows >= _RANGE_STRETCHES * spread.reach_rows
        ratios[..., _RANGE] = np.where(long_enough, within, 0.0)
        most = spread.most(after.rows, self._profile.rows)
        most = np.concatenate((most, most[..., _SHAPE, None]), axis=-1)
        return np.minimum(ratios, most)

    def _packed(self, counts: Counts) -> Floats:
        plain, season = self._projection.summarise(counts), self._profile.season
        if season is None:
            return pack(plain)
        worth = season.worth(plain.finite, counts.hours, self._rows_of_hours)
        return pack(season.removed_from(plain, counts.hours), worth)

    def _remember(self, hours: Mapping[int, int]) -> None:
        """Count the rows of the hours that the next window may belong to, too."""
        before = self._rows_of_hours
        self._rows_of_hours = {h: n + before.get(h, 0) for h, n in hours.items()}

    def _raise(self, features: Floats, total: float) -> Verdict:
        everything = self.log_ratios() + self._log_weights
        start = int(np.argmax(likelihood_ratios.log_sum(everything, axis=(1, 2))))
        age = self._ledger.ages[start]
        # R_t of one feature has mean t at most, so R_t / t is the e-value.
        named = e_benjamini_hochberg(
            features - np.log(self._since_clear), self._settings.false_share
        ) or [int(np.argmax(features))]
        self._culprits = self._explained(start, everything[start], named)
        # Fewer rows would show nothing, whatever the data are.
        self._clear_rows = float(self._ledger.rows_since[start])
        self._ledger.freeze(start)
        self._alarm_start = self._ledger.windows - age
        return self._verdict(total, features, raised=True)

    def _while_alarmed(self) -> Verdict:
        ages = np.array(self._ledger.ages)
        enough = np.flatnonzero(
            (ages >= _CLEAR_WINDOWS) & (self._ledger.rows_since >= self._clear_rows)
        )
        start = int(enough[0]) if enough.size else ages.size - 1
        weighted = self._weighted(self._ledger, start)
        features = likelihood_ratios.log_sum(weighted, axis=-1)
        total = _of_model(features)
        if enough.size and total < 0.0:
            self._ledger.thaw()
            self._alarm_start = None
            self._since_clear = 0
            self._culprits = ()
        else:
            named = e_benjamini_hochberg(features, self._settings.false_share)
            if named:
                self._culprits = self._explained(start, weighted, named)
        return self._verdict(total, features, raised=False)

    def _explained(
        self, start: int, weighted: Floats, named: Sequence[int]
    ) -> tuple[Culprit, ...]:
        sides = _sides_at(self._ledger, start)
        recent = list(self._joint)[-self._ledger.ages[start] :]
        return explain(self._profile, *sides, weighted, named, recent)

    def _nothing(self) -> Floats:
        return np.full(len(self._profile.names), -np.inf)

    def _verdict(self, total: float, features: Floats, *, raised: bool) -> Verdict:
        start = self._alarm_start
        return Verdict(
            self._ledger.windows,
            float(total),
            self.log_threshold,
            start is not None,
            raised,
            features,
            self._culprits,
            0 if start is None else self._ledger.windows - start,
            not self._profile.caveats,
        )

    def state(self) -> dict[str, Any]:
        """Return the state as JSON values and arrays, which are not copied."""
        return {
            "profile": self._profile.fingerprint,
            "ledger": self._ledger.state(),
            "since_clear": self._since_clear,
            "alarm_start": self._alarm_start,
            "clear_rows": self._clear_rows,
            "culprits": [culprit.to_json() for culprit in self._culprits],
            "pairs": [asdict(pair) for c in self._culprits for pair in c.pairs],
        }

    def resume(self, payload: dict[str, Any]) -> None:
        """Restore what `state` returned; after an error the monitor is unchanged.

        Raises:
            StateError: it is of another profile, or cannot be read.
        """
        fresh = Ledger(pack(self._profile.summary))
        try:
            if payload["profile"] != self._profile.fingerprint:
                raise StateError("this state belongs to another reference profile")
            fresh.restore(payload["ledger"])
            pairs = tuple(Pair(**pair) for pair in payload.get("pairs", ()))
            culprits = tuple(
                replace(
                    culprit,
                    pairs=pairs if culprit.feature == self._profile.joint_name else (),
                )
                for culprit in map(Culprit.from_json, payload["culprits"])
            )
            start = payload["alarm_start"]
            since = int(payload["since_clear"])
            clear_rows = float(payload.get("clear_rows", 0))
        except UNREADABLE as error:
            raise StateError(f"cannot read the monitor state: {error!r}") from error
        self._ledger, self._culprits = fresh, culprits
        self._since_clear, self._clear_rows = since, clear_rows
        self._alarm_start = None if start is None else int(start)


def _of_model(features: Floats) -> float:
    """The model's log evidence: the mean over its features."""
    return float(
        likelihood_ratios.log_sum(features, axis=0) - np.log(features.shape[0])
    )


def _sides_at(ledger: Ledger, start: int) -> tuple[Sums, Sums]:
    before, after = ledger.sides(starts=[start])
    return Sums(before.packed[0]), Sums(after.packed[0])


def _log_weights(profile: Profile) -> Floats:
    """Share of the budget of each (feature, channel); a feature's shares add up to 1."""
    projection, features = profile.projection, len(profile.names)
    weights = np.tile(np.array(WEIGHTS), (features, 1))
    weights[:, 0] *= np.any(projection.location != 0, axis=1)
    weights[:, 1] *= np.any(projection.scale != 0, axis=1)
    weights[:, 2] *= projection.used > 1
    weights[:, 4] *= projection.ordered
    shown = profile.dispersion.shown
    weights[:, _RANGE] *= np.isfinite(shown).all(axis=(1, 2))
    if profile.joint is not None:
        # Only more unusual batches are a change.
        weights[-1] = np.arange(len(CHANNELS)) == CHANNELS.index("outside")
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(weights / weights.sum(axis=1, keepdims=True)))
