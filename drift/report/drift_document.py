"""A judgement as a report for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from drift.report import drift_plots
from drift.report.words import (
    OUTCOMES,
    headline,
    kind_of_change,
    number_of_features,
    percent,
    promise,
    sizes,
)
from pages.blocks import (
    Document,
    Facts,
    Figure,
    Fold,
    Paragraph,
    Section,
    Table,
    Verdict,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from drift.judgement import FeatureFinding, Judgement, Share
    from drift.reference import Profile
    from drift.window import Counts
    from pages.blocks import Block, Tone

MAX_DRAWN: Final = 60
_OPEN: Final = 6
_RANKING: Final = (
    "Log evidence is the natural logarithm of the evidence against unchanged data. "
    "Of unchanged data of this size, 99.9 % have a PSI below the PSI bound. A shift is "
    "in standard deviations of the reference's normal scores; categories have none."
)
_TONES: Final[dict[str, Tone]] = {
    "drift": "bad",
    "no_drift": "good",
    "not_enough_data": "note",
}


@dataclass(frozen=True, slots=True)
class Origin:
    """Origin of the data."""

    reference: str
    data: str
    data_sha256: str
    made_at: str
    versions: Mapping[str, str]


def document(
    found: Judgement, profile: Profile, counts: Counts, origin: Origin
) -> Document:
    """Return the report of a judgement."""
    title = f"{OUTCOMES[found.outcome]}: {origin.data} compared with {origin.reference}"
    about = (
        f"reference {found.reference_rows:,} rows · data {found.rows:,} rows · "
        f"{number_of_features(found)} · {origin.made_at}"
    )
    return Document(title, _blocks(found, profile, counts, origin), (about,))


def _blocks(
    found: Judgement, profile: Profile, counts: Counts, origin: Origin
) -> Iterator[Block]:
    yield Verdict(_TONES[found.outcome], headline(found))
    yield Paragraph(promise(found))
    for caveat in found.caveats:
        yield Verdict("note", f"False-alarm rate not guaranteed: {caveat}.")
    for blind in found.blind_spots:
        yield Verdict("note", f"Not tested: {blind}.")
    for violation in found.violations:
        yield Verdict("note", f"Schema: {violation}.")
    yield Section(
        "Features, the strongest evidence first",
        [_ranking(found), Paragraph(_RANKING, soft=True)],
    )
    yield Section("One by one", _features(found, profile, counts))
    yield Section("Sources", [_sources(profile, origin)])


def _ranking(found: Judgement) -> Table:
    heads = (
        "feature", "changed", "log evidence", "PSI", "PSI bound", "shift", "missing",
        "out of range, unseen",
    )  # fmt: skip
    rows = []
    for feature in found.features[:MAX_DRAWN]:
        psi = next((d for d in feature.distances if d.kind == "psi"), None)
        shift = feature.shift_sigma
        rows.append(
            (
                feature.name,
                "yes" if feature.changed else "",
                f"{feature.log_evidence:.1f}",
                "-" if psi is None else f"{psi.value:.3g}",
                "-" if psi is None else f"{psi.null_bound:.3g}",
                "-" if shift is None else f"{shift:+z.2f} sd",
                _moved(feature.quality[0]),
                _moved(feature.quality[-1]),
            )
        )
    return Table(heads, rows)


def _moved(share: Share) -> str:
    before, now = percent(share.reference), percent(share.data)
    return now if before == now else f"{before} → {now}"


def _features(found: Judgement, profile: Profile, counts: Counts) -> Iterator[Block]:
    places = {name: i for i, name in enumerate(profile.names)}
    for index, feature in enumerate(found.features[:MAX_DRAWN]):
        shown = drift_plots.bars(profile, counts, places[feature.name])
        yield Fold(
            feature.name,
            _feature(feature, shown),
            tone="bad" if feature.changed else "info",
            badge="changed" if feature.changed else "",
            label=feature.kind,
            is_open=feature.changed or index < _OPEN,
            in_text=feature.changed,
        )
    hidden = len(found.features) - MAX_DRAWN
    if hidden > 0:
        yield Paragraph(f"… and {hidden} more; the JSON report has all.", soft=True)


def _feature(feature: FeatureFinding, shown: drift_plots.Bars) -> Iterator[Block]:
    if shown.labels:
        yield Figure(drift_plots.distribution(shown))
    else:
        yield Paragraph("no values to draw", soft=True)
    kind = [kind_of_change(feature)] if feature.changed else []
    measured = " · ".join([*kind, *sizes(feature)])
    if measured:
        yield Paragraph(measured)
    if feature.distances:
        yield Figure(drift_plots.distances(feature.distances))
    else:
        yield Paragraph("nothing to compare: a side has no values", soft=True)
    if feature.changed and feature.bins:
        yield Table(
            ("changed most", "reference", "data"),
            [(s.name, percent(s.reference), percent(s.data)) for s in feature.bins],
        )


def _sources(profile: Profile, origin: Origin) -> Facts:
    return Facts(
        {
            "reference": profile.provenance.source or origin.reference,
            "SHA-256 of its data": profile.provenance.sha256 or "unknown",
            "made with": dict(sorted(profile.provenance.versions.items())),
            "data": origin.data,
            "SHA-256 of the data": origin.data_sha256,
            "compared with": dict(sorted(origin.versions.items())),
            "dependence between rows": (
                f"measured in {profile.blocks} blocks of {profile.block_rows} rows"
                if profile.ordered
                else "unknown: the reference is not in the order of time"
            ),
        }
    )
