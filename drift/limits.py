"""The limits of a reference, in sentences: caveats of its guarantee, and its blind spots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drift.dispersion import MIN_BLOCKS
from drift.grid import OTHER
from drift.projection import ORDERED_CELLS
from drift.season import DAYS
from pages.units import percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from drift.reference import Profile
    from drift.window import Counts

MIN_ROWS: Final = 500
# Overdispersion that grows faster than this power of the rows is as long as the reference.
FAR: Final = 0.5
MAX_NAMES: Final = 5
_HIDDEN_SHARE: Final = 0.1
"""Share of the reference in one cell of several values that is reported as a limit."""


def caveats(profile: Profile) -> Iterator[str]:
    """Yield reasons why the false-alarm rate may not hold."""
    if profile.rows < MIN_ROWS:
        yield f"the reference has {profile.rows} rows; at least {MIN_ROWS} are needed"
    if not profile.ordered:
        yield (
            "the reference is not in the order of time, so dependence between rows "
            "cannot be measured"
        )
    elif profile.blocks < MIN_BLOCKS:
        yield (
            f"the reference has {profile.blocks} blocks; at least {MIN_BLOCKS} are "
            "needed to measure dependence between rows"
        )
    far = profile.dispersion.growth > FAR
    if far.any():
        names = [n for n, is_far in zip(profile.names, far, strict=True) if is_far]
        yield (
            f"rows of {_listed(names)} depend on each other over more rows than the blocks of "
            f"{profile.dispersion.reach_rows:.0f} that can be measured; the rest is "
            "extrapolated"
        )
    if profile.weekdays is not None and len(profile.weekdays) < len(DAYS):
        absent = [day for i, day in enumerate(DAYS) if i not in profile.weekdays]
        yield (
            f"the reference has no rows from {_listed(absent, len(DAYS))}; normal "
            "data of such a day may be reported as drift"
        )


def caveats_of_data(profile: Profile, counts: Counts) -> Iterator[str]:
    """Yield reasons why the false-alarm rate may not hold for these data."""
    if profile.season is not None and sum(counts.hours.values()) < counts.rows:
        yield (
            "the reference has seasons and the data have no times, so the season of their "
            "hours may be reported as drift; name the column of times with --time"
        )


def blind_spots(profile: Profile) -> Iterator[str]:
    """Describe the changes that a comparison with this reference cannot detect."""
    cells = profile.counts.cells
    hidden = [
        f"{name} ({percent(share)})"
        for index, name in enumerate(profile.schema.names[: profile.schema.numeric])
        if (share := _in_one_cell(profile, index)) > _HIDDEN_SHARE
    ]
    if hidden:
        yield (
            f"{_listed(hidden)}: this share of the reference is in one bin of several "
            "possible values, within which changes are not detected; create the "
            "reference again"
        )
    if profile.joint is None and profile.no_joint:
        yield profile.no_joint
    for index, category in enumerate(profile.categories, profile.schema.numeric):
        if not category.open:
            continue
        named = int(cells[index, : len(category.values)].sum())
        other = int(cells[index, OTHER])
        yield (
            f"{profile.schema.names[index]}: too many values to detect new ones; "
            f"{percent(other / max(named + other, 1))} of the reference's rows have none "
            "of its most common values and are counted together"
        )


def _in_one_cell(profile: Profile, feature: int) -> float:
    if feature in profile.grid.cuts:
        return 0.0
    inside = profile.counts.cells[feature, :ORDERED_CELLS]
    return float(inside.max() / max(int(inside.sum()), 1))


def _listed(names: Sequence[str], most: int = MAX_NAMES) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
