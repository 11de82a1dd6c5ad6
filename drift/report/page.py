"""A judgement as one HTML file that needs nothing else: no script, no network."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final

from drift.report import plots
from drift.report.style import STYLE
from drift.report.words import (
    OUTCOMES,
    STATISTICS,
    headline,
    kind_of_change,
    percent,
    promise,
    sizes,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from drift.judgement import FeatureFinding, Judgement, Share
    from drift.reference import Profile
    from drift.window import Counts

MAX_DRAWN: Final = 60
_OPEN: Final = 6
_CSP: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the data come from, for the foot of the page."""

    reference: str
    data: str
    data_sha256: str
    made_at: str
    versions: Mapping[str, str]


def render(found: Judgement, profile: Profile, counts: Counts, origin: Origin) -> str:
    """The whole file."""
    title = f"{OUTCOMES[found.outcome]}: {origin.data} beside {origin.reference}"
    parts = (
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_CSP}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer">',
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>",
        *_head(found, origin),
        "<main>",
        *_ranking(found),
        *_features(found, profile, counts),
        "</main>",
        *_foot(profile, origin),
        "</body></html>",
    )
    return "\n".join(parts) + "\n"


def _head(found: Judgement, origin: Origin) -> Iterator[str]:
    yield f"<header><h1>{escape(origin.data)} beside {escape(origin.reference)}</h1>"
    yield (
        f'<p class="soft">reference {found.reference_rows:,} rows · data '
        f"{found.rows:,} rows · {len(found.features)} features · "
        f"{escape(origin.made_at)}</p>"
    )
    yield f'<p class="verdict {found.outcome}">{escape(headline(found))}</p>'
    yield f"<p>{escape(promise(found))}</p>"
    for caveat in found.caveats:
        yield f'<p class="caveat">Promise not kept: {escape(caveat)}.</p>'
    for violation in found.violations:
        yield f'<p class="caveat">Schema: {escape(violation)}.</p>'
    yield "</header>"


def _ranking(found: Judgement) -> Iterator[str]:
    yield "<h2>Features, the strongest evidence first</h2>"
    yield '<div class="scroll"><table><thead><tr><th>feature</th><th></th>'
    yield "<th>log evidence</th><th>PSI</th><th>null &lt;</th><th>shift</th>"
    yield "<th>missing</th><th>out of range, unseen</th></tr></thead><tbody>"
    for index, feature in enumerate(found.features):
        yield _row(index, feature)
    yield "</tbody></table></div>"


def _row(index: int, feature: FeatureFinding) -> str:
    psi = next((d for d in feature.distances if d.kind == "psi"), None)
    shift = "-" if feature.shift_sigma is None else f"{feature.shift_sigma:+.2f} sd"
    name = escape(feature.name)
    if index < MAX_DRAWN:
        name = f'<a href="#f{index}">{name}</a>'
    badge = '<span class="badge">changed</span>' if feature.changed else ""
    beyond = ' class="hot"' if psi is not None and psi.beyond else ""
    return (
        f"<tr><td>{name}</td><td>{badge}</td><td>{feature.log_evidence:.1f}</td>"
        f"<td{beyond}>{'-' if psi is None else f'{psi.value:.3g}'}</td>"
        f"<td>{'-' if psi is None else f'{psi.null_bound:.3g}'}</td><td>{shift}</td>"
        f"{_share(feature.quality[0])}{_share(feature.quality[-1])}</tr>"
    )


def _share(share: Share) -> str:
    before, now = percent(share.reference), percent(share.data)
    return f"<td>{now if before == now else f'{before} → {now}'}</td>"


def _features(found: Judgement, profile: Profile, counts: Counts) -> Iterator[str]:
    yield "<h2>One by one</h2>"
    yield (
        '<ul class="key"><li><i class="k-old"></i>reference</li>'
        '<li><i class="k-new"></i>data</li>'
        '<li><i class="k-null"></i>where a distance lies without change: '
        "mean, and 99.9 % bound for as many rows</li></ul>"
    )
    places = {name: i for i, name in enumerate(profile.schema.names)}
    for index, feature in enumerate(found.features[:MAX_DRAWN]):
        shown = plots.bars(profile, counts, places[feature.name])
        yield from _feature(index, feature, plots.distribution(shown, feature.name))
    hidden = len(found.features) - MAX_DRAWN
    if hidden > 0:
        yield f'<p class="soft">… and {hidden} more; the JSON report has all.</p>'


def _feature(index: int, feature: FeatureFinding, plot: str) -> Iterator[str]:
    is_open = " open" if feature.changed or index < _OPEN else ""
    tone = "changed" if feature.changed else "calm"
    yield f'<details id="f{index}" class="feature {tone}"{is_open}><summary>'
    yield f"<h3>{escape(feature.name)}</h3>"
    yield f'<span class="soft">{feature.kind}</span>'
    if feature.changed:
        yield f'<span class="badge">{escape(kind_of_change(feature))}</span>'
    yield f'</summary><div class="two"><div>{plot}'
    measured = " · ".join(sizes(feature)).replace("->", "→")
    if measured:
        yield f"<p>{escape(measured)}</p>"
    yield "</div><div>"
    yield from _distances(feature)
    yield "</div></div>"
    if feature.changed:
        yield from _bins(feature)
    yield "</details>"


def _distances(feature: FeatureFinding) -> Iterator[str]:
    if not feature.distances:
        yield '<p class="soft">nothing to compare: a side has no values</p>'
        return
    yield '<dl class="scores">'
    for found in feature.distances:
        yield (
            f"<dt>{STATISTICS[found.kind]}</dt><dd>{plots.distance(found)}"
            f"<span>{found.value:.3g}</span></dd>"
        )
    yield "</dl>"


def _bins(feature: FeatureFinding) -> Iterator[str]:
    if not feature.bins:
        return
    yield '<table class="bins"><thead><tr><th>moved most</th><th>reference</th>'
    yield "<th>data</th></tr></thead><tbody>"
    for share in feature.bins:
        yield (
            f"<tr><td>{escape(share.name)}</td><td>{percent(share.reference)}</td>"
            f"<td>{percent(share.data)}</td></tr>"
        )
    yield "</tbody></table>"


def _foot(profile: Profile, origin: Origin) -> Iterator[str]:
    facts = {
        "reference": profile.provenance.source or origin.reference,
        "SHA-256 of its data": profile.provenance.sha256 or "unknown",
        "made with": _versions(profile.provenance.versions),
        "data": origin.data,
        "SHA-256 of the data": origin.data_sha256,
        "compared with": _versions(origin.versions),
        "dependence between rows": (
            f"measured in {profile.blocks} blocks of {profile.block_rows} rows"
            if profile.ordered
            else "unknown: the reference is not in the order of time"
        ),
    }
    yield "<footer><h2>What it rests on</h2><dl>"
    for name, value in facts.items():
        yield f"<dt>{name}</dt><dd>{escape(value)}</dd>"
    yield "</dl></footer>"


def _versions(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {found}" for name, found in sorted(versions.items()))
