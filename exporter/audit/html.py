"""A report as one HTML file: no script, nothing from elsewhere, everything escaped."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from exporter.audit.finding import many, shown, shown_key
from exporter.audit.shares import CAVEAT, PHASES
from exporter.audit.text import grouped, number, summary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from exporter.audit.finding import Finding, Measure
    from exporter.audit.report import Report
    from exporter.audit.shares import Phase, TimeShare

MOST_SHARES: Final = 50
_FOLDED: Final = frozenset({"info", "ok"})
_TOLD_RATIO: Final = 0.05

_NAMES: Final[dict[Phase, str]] = {
    "network": "network",
    "queue": "queue",
    "compute_input": "input",
    "compute_infer": "inference",
    "compute_output": "output",
    "other": "other",
}

_CSP: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)

_STYLE: Final = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1b1f24; --soft: #59636e;
  --line: #d8dee4; --card: #f6f8fa; --critical: #b3261e; --warning: #8a5a00;
  --unknown: #5b4bb5; --info: #0a5fb4; --ok: #1a7037; --network: #8c959f;
  --queue: #d1604d; --compute_input: #c9a227; --compute_infer: #2f7fd1;
  --compute_output: #6f56c2; --other: #c3cad1; }
@media (prefers-color-scheme: dark) { :root { --paper: #0f1318; --ink: #e6eaef;
  --soft: #9aa5b1; --line: #2d343c; --card: #171c22; --critical: #ff8a80;
  --warning: #e8b339; --unknown: #b3a6ff; --info: #7db8ff; --ok: #6fd08c;
  --network: #6e7781; --queue: #e07a68; --compute_input: #d8b545;
  --compute_infer: #4c97e6; --compute_output: #9480e0; --other: #4a535d; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem 1rem 4rem; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; }
h2 { font-size: 1.15rem; margin: 2rem 0 .75rem; }
p { margin: .25rem 0; }
.soft { color: var(--soft); font-size: .9rem; }
.verdict { margin: 1rem 0; padding: .6rem .9rem; background: var(--card);
  border-left: .3rem solid var(--tone); border-radius: .3rem; font-weight: 600; }
.critical { --tone: var(--critical); } .warning { --tone: var(--warning); }
.unknown { --tone: var(--unknown); } .info { --tone: var(--info); }
.ok { --tone: var(--ok); }
.finding { border: 1px solid var(--line); border-left: .3rem solid var(--tone);
  border-radius: .3rem; margin: .75rem 0; padding: .6rem .9rem; }
.finding summary { list-style: none; }
.finding summary::-webkit-details-marker { display: none; }
.finding summary::after { content: "+"; color: var(--soft); float: right;
  margin-top: -1.6rem; }
.finding[open] summary::after { content: "\\2212"; }
.finding h3 { font-size: 1rem; margin: 0 1.5rem 0 0; font-weight: 600; }
.badge { color: var(--tone); font-size: .75rem; font-weight: 700; letter-spacing: .04em;
  text-transform: uppercase; }
.id { color: var(--soft); font: .8rem ui-monospace, monospace; margin-left: .5rem; }
dl { display: grid; grid-template-columns: minmax(7rem, max-content) 1fr;
  gap: .1rem 1rem; margin: .5rem 0; font-size: .9rem; }
dt { color: var(--soft); } dd { margin: 0; font-variant-numeric: tabular-nums; }
.share { margin: .9rem 0; }
.share .line { display: flex; flex-wrap: wrap; justify-content: space-between;
  gap: 0 1rem; font-size: .95rem; }
svg { display: block; width: 100%; height: 1.4rem; border-radius: .25rem; }
.key { display: flex; flex-wrap: wrap; gap: .25rem 1rem; font-size: .85rem;
  color: var(--soft); padding: 0; margin: 0; list-style: none; }
.key i { display: inline-block; width: .8rem; height: .8rem; border-radius: .15rem;
  margin-right: .35rem; vertical-align: -.1rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .85rem; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; font-variant-numeric: tabular-nums; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
details { margin-top: .75rem; } summary { cursor: pointer; }
""" + "".join(
    f".f-{phase} {{ fill: var(--{phase}); background: var(--{phase}); }}\n"
    for phase in PHASES
)


def render(report: Report) -> str:
    """The whole file."""
    head = f"tritonwatch audit of {report.grpc}"
    parts = (
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_CSP}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer">',
        f"<title>{escape(head)}</title><style>{_STYLE}</style></head><body>",
        *_head(report),
        *_shares(report),
        "<main><h2>Findings</h2>",
        *_findings(report),
        "</main></body></html>",
    )
    return "\n".join(parts) + "\n"


def _head(report: Report) -> Iterator[str]:
    version = shown(report.server_version) if report.server_version else "no answer"
    yield f"<header><h1>Audit of {escape(report.grpc)}</h1>"
    yield (
        f'<p class="soft">Triton {escape(version)} · {many(report.models, "model")} · '
        f"{escape(report.started_at)} · {report.seconds:.1f} s, of which "
        f"{report.window_seconds:.1f} s of production · "
        f"tritonwatch {escape(report.tritonwatch_version)}</p>"
    )
    yield (
        f'<p class="verdict {report.verdict}">Verdict: {report.verdict}. '
        f"{escape(summary(report))}</p></header>"
    )


def _findings(report: Report) -> Iterator[str]:
    for finding, more in grouped(report.findings):
        yield from _finding(finding)
        if more:
            yield (
                f'<p class="soft">… and {more} more of {escape(finding.id)}; '
                "the JSON report has all</p>"
            )


def _finding(finding: Finding) -> Iterator[str]:
    # What asks for nothing folds away, so that a phone shows first what does.
    state = "" if finding.severity in _FOLDED else " open"
    yield f'<details class="finding {finding.severity}"{state}><summary>'
    yield (
        f'<span class="badge">{finding.severity}</span>'
        f'<span class="id">{escape(finding.id)}</span>'
    )
    yield f"<h3>{escape(finding.title)}</h3></summary>"
    if finding.evidence:
        yield f"<dl>{''.join(map(_measure, finding.evidence))}</dl>"
    if finding.advice:
        yield f"<p>{escape(finding.advice)}</p>"
    if finding.reference:
        yield f'<p class="soft">see {escape(finding.reference)}</p>'
    yield "</details>"


def _measure(item: Measure) -> str:
    unit = f" {item.unit}" if item.unit and item.value is not None else ""
    source = f' <span class="soft">{escape(item.source)}</span>' if item.source else ""
    value = escape(number(item.value) + unit)
    return f"<dt>{escape(item.name)}</dt><dd>{value}{source}</dd>"


def _shares(report: Report) -> Iterator[str]:
    if not report.time_shares:
        return
    shares = report.time_shares[:MOST_SHARES]
    yield "<section><h2>Where a request's time goes</h2>"
    yield '<ul class="key">'
    yield from (
        f'<li><i class="f-{phase}"></i>{name}</li>' for phase, name in _NAMES.items()
    )
    yield "</ul>"
    for share in shares:
        yield from _bar(share)
    yield from _table(shares)
    more = len(report.time_shares) - len(shares)
    if more:
        yield f'<p class="soft">… and {many(more, "model")} more; the JSON report has all</p>'
    yield f'<p class="soft">{escape(CAVEAT)}</p></section>'


def _bar(share: TimeShare) -> Iterator[str]:
    name = escape(shown_key((share.model, share.version)))
    read = (
        "while we watched" if share.source == "window" else "since the model was loaded"
    )
    yield (
        f'<div class="share"><div class="line"><strong>{name}</strong>'
        f"<span>{share.total_seconds * 1e3:.3f} ms</span></div>"
    )
    told = ", ".join(f"{_NAMES[p]} {share.ratio(p):.0%}" for p in PHASES)
    yield (
        f'<svg viewBox="0 0 1000 10" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(told)}">'
    )
    edge = 0.0
    for phase in PHASES:
        width = share.ratio(phase) * 1000
        yield (
            f'<rect class="f-{phase}" x="{edge:.2f}" y="0" width="{width:.2f}" '
            f'height="10"><title>{_NAMES[phase]} {share.ratio(phase):.1%}</title></rect>'
        )
        edge += width
    most = ", ".join(
        f"{_NAMES[p]} {share.ratio(p):.0%}"
        for p in sorted(PHASES, key=share.ratio, reverse=True)
        if share.ratio(p) >= _TOLD_RATIO
    )
    yield "</svg>"
    yield f'<p class="soft">{most} · {many(share.requests, "request")} {read}</p></div>'


def _table(shares: tuple[TimeShare, ...]) -> Iterator[str]:
    yield "<details><summary>As numbers, in milliseconds</summary>"
    yield '<div class="scroll"><table><thead><tr><th>model</th>'
    yield "".join(f"<th>{name}</th>" for name in _NAMES.values())
    yield "</tr></thead><tbody>"
    for share in shares:
        name = escape(shown_key((share.model, share.version)))
        cells = "".join(
            "<td>unknown</td>"
            if phase == "network" and share.network is None
            else f"<td>{share.seconds(phase) * 1e3:.3f}</td>"
            for phase in PHASES
        )
        yield f"<tr><td>{name}</td>{cells}</tr>"
    yield "</tbody></table></div></details>"
