"""A judgement for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drift.report.words import (
    OUTCOMES,
    headline,
    kind_of_change,
    percent,
    promise,
    sizes,
)
from drift.statistics import STATISTICS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drift.judgement import FeatureFinding, Judgement

MOST_FEATURES: Final = 20
_COLUMNS: Final = ("psi", "kolmogorov_smirnov", "wasserstein")


def render(found: Judgement, reference: str, data: str) -> str:
    """Return the whole text, ending with a newline."""
    return "\n".join(_lines(found, reference, data)) + "\n"


def _lines(found: Judgement, reference: str, data: str) -> Iterator[str]:
    yield f"{OUTCOMES[found.outcome].upper()}  {headline(found)}"
    yield f"reference  {reference}, {found.reference_rows:,} rows"
    yield f"data       {data}, {found.rows:,} rows"
    yield promise(found)
    for caveat in found.caveats:
        yield f"false-alarm rate not guaranteed: {caveat}"
    for blind in found.blind_spots:
        yield f"not tested: {blind}"
    for violation in found.violations:
        yield f"schema: {violation}"
    for feature in found.changed[:MOST_FEATURES]:
        yield ""
        yield from _changed(feature)
    if len(found.changed) > MOST_FEATURES:
        yield f"... and {len(found.changed) - MOST_FEATURES} more; --json has all"
    yield ""
    yield from _table(found)


def _changed(feature: FeatureFinding) -> Iterator[str]:
    yield f"{feature.name}: {kind_of_change(feature)}"
    measured = ", ".join(sizes(feature))
    if measured:
        yield f"    {measured}"
    for change in feature.bins:
        yield (
            f"    {percent(change.reference):>7} -> {percent(change.data):>7}  "
            f"{change.name}"
        )


def _table(found: Judgement) -> Iterator[str]:
    width = min(max([len(f.name) for f in found.features] + [7]), 40)
    heads = "".join(f"{STATISTICS[kind].title:>27}" for kind in _COLUMNS)
    yield f"{'feature':<{width}}{'log evidence':>13}{heads}"
    for feature in found.features[:MOST_FEATURES]:
        values = {distance.kind: distance for distance in feature.distances}
        cells = ""
        for kind in _COLUMNS:
            distance = values.get(kind)
            text = (
                "-"
                if distance is None
                else f"{distance.value:.3g} (bound {distance.null_bound:.3g})"
            )
            cells += f"{text:>27}"
        yield f"{feature.name[:width]:<{width}}{feature.log_evidence:>13.1f}{cells}"
    if len(found.features) > MOST_FEATURES:
        yield f"... and {len(found.features) - MOST_FEATURES} more; --json has all"
