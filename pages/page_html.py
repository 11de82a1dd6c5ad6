"""A report as one HTML file: no script, nothing from elsewhere, every text escaped."""

from __future__ import annotations

import csv
import io
import re
from html import escape
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from pages.blocks import (
    Facts,
    Figure,
    Fold,
    Items,
    Paragraph,
    Section,
    Shares,
    Table,
    Tiles,
    Verdict,
)
from pages.units import percent

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pages.blocks import Block, Document

_CSP: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)
_NUMBER: Final = re.compile(r"\[?[-+<±≥]? ?\d")
_FORMULA: Final = re.compile(r"^[=@+-](?!\d[\d.]*(?: [\w%µ]+)?$)")
"""The beginning of a cell that a spreadsheet would run."""
_LONGEST_NUMBER: Final = 28
_COLOURS: Final = 6


def render(document: Document) -> str:
    """Return the whole file."""
    about = "".join(
        f'<p class="soft">{escape(line)}</p>' for line in document.about if line
    )
    parts = (
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_CSP}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer">',
        f"<title>{escape(document.title)}</title><style>{STYLE}</style></head><body>",
        f"<header><h1>{escape(document.title)}</h1>{about}</header>",
        f"<main>{_all(document.blocks, 2)}</main>",
        "</body></html>",
    )
    return "\n".join(parts) + "\n"


def _all(blocks: Iterable[Block], level: int) -> str:
    return "\n".join(_block(block, level) for block in blocks)


def _block(block: Block, level: int) -> str:  # noqa: C901, PLR0911 - one case a kind
    match block:
        case Verdict():
            return f'<p class="verdict {block.tone}">{escape(block.text)}</p>'
        case Paragraph():
            soft = ' class="soft"' if block.soft else ""
            return f"<p{soft}>{escape(block.text)}</p>"
        case Items():
            items = "".join(f"<li>{escape(text)}</li>" for text in block.texts)
            return f"<ul>{items}</ul>"
        case Tiles():
            items = "".join(
                f"<li><b>{escape(value)}</b>{escape(name)}</li>"
                for name, value in block.values.items()
            )
            return f'<ul class="tiles">{items}</ul>' if items else ""
        case Table():
            return _table(block)
        case Facts():
            items = "".join(
                f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>"
                for name, value in block.pairs
            )
            return f"<dl>{items}</dl>"
        case Figure():
            return (
                f"<figure><figcaption>{escape(block.plot.caption)}</figcaption>"
                f"{_key(block.plot.key)}{block.plot.render()}</figure>"
            )
        case Shares():
            return _shares(block)
        case Section():
            inner = _all(block.blocks, level + 1)
            return (
                f"<h{level}>{escape(block.title)}</h{level}>\n{inner}" if inner else ""
            )
        case Fold():
            return _fold(block, level)


def _table(table: Table) -> str:
    rows = [tuple(row) for row in table.rows]
    kinds = [
        "" if _are_numbers([row[place] for row in rows]) else ' class="word"'
        for place in range(len(table.heads))
    ]
    head = "".join(
        f"<th{kind}>{escape(cell)}</th>"
        for kind, cell in zip(kinds, table.heads, strict=True)
    )
    body = "".join(
        "<tr>{}</tr>".format(
            "".join(
                f'<td{kind} data-head="{escape(head)}">{escape(cell)}</td>'
                for kind, head, cell in zip(kinds, table.heads, row, strict=True)
            )
        )
        for row in rows
    )
    return (
        f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table>{_csv(table)}</div>"
    )


def _csv(table: Table) -> str:
    """A link that downloads the table, without a script; spreadsheets run no formula."""
    text = io.StringIO()
    csv.writer(text).writerows(
        [_FORMULA.sub(r"'\g<0>", cell) for cell in row]
        for row in (table.heads, *table.rows)
    )
    return (
        f'<a class="csv" download="{escape(table.heads[0])}.csv" '
        f'href="data:text/csv;charset=utf-8,{quote(text.getvalue())}">CSV</a>'
    )


def _are_numbers(cells: Sequence[str]) -> bool:
    known = [cell for cell in cells if cell != "unknown"]
    return bool(cells) and (
        not known
        or (any(map(_NUMBER.match, known)) and max(map(len, known)) <= _LONGEST_NUMBER)
    )


def _key(named: Iterable[tuple[str, str]]) -> str:
    items = "".join(
        f'<li><i class="{colour}"></i>{escape(name)}</li>' for colour, name in named
    )
    return f'<ul class="key">{items}</ul>' if items else ""


def _fold(fold: Fold, level: int) -> str:
    kind = f' class="card {fold.tone}"' if fold.tone else ""
    badge = f'<span class="badge">{escape(fold.badge)}</span> ' if fold.badge else ""
    label = f'<span class="id">{escape(fold.label)}</span>' if fold.label else ""
    return (
        f"<details{kind}{' open' if fold.is_open else ''}><summary>{badge}{label}"
        f"<strong>{escape(fold.title)}</strong></summary>\n"
        f"{_all(fold.blocks, level)}</details>"
    )


def _shares(shares: Shares) -> str:
    bars, edge = [], 0.0
    for place, (name, ratio) in enumerate(shares.parts.items()):
        bars.append(
            f'<rect class="fill c{place % _COLOURS}" x="{edge:.2f}" y="0" '
            f'width="{ratio * 1000:.2f}" height="10">'
            f"<title>{escape(name)} {percent(ratio)}</title></rect>"
        )
        edge += ratio * 1000
    named = shares.largest
    key = _key(
        (f"c{place % _COLOURS}", name)
        for place, (name, ratio) in enumerate(shares.parts.items())
        if ratio
    )
    note = f'<p class="soft">{escape(shares.note)}</p>' if shares.note else ""
    return (
        f'<div class="shares"><p><strong>{escape(shares.name)}</strong> '
        f"<span>{escape(shares.whole)}</span></p>"
        '<svg viewBox="0 0 1000 10" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(named)}">{"".join(bars)}</svg>'
        f'{key}<p class="soft">{escape(named)}</p>{note}</div>'
    )


_LIGHT: Final = """--paper: #fff; --ink: #1b1f24; --soft: #59636e; --line: #d8dee4;
  --card: #f6f8fa; --bad: #b3261e; --good: #1a7037; --note: #8a5a00; --doubt: #5b4bb5;
  --info: #0a5fb4; --c0: #2f7fd1; --c1: #c4501b; --c2: #2b8a57; --c3: #7b56c2;
  --c4: #a8830c; --c5: #8c959f;"""
_DARK: Final = """--paper: #0f1318; --ink: #e6eaef; --soft: #9aa5b1; --line: #2d343c;
  --card: #171c22; --bad: #ff8a80; --good: #6fd08c; --note: #e8b339; --doubt: #b3a6ff;
  --info: #7db8ff; --c0: #6aaef5; --c1: #f08a5d; --c2: #63c992; --c3: #b49cf0;
  --c4: #dcbc4f; --c5: #6e7781;"""

STYLE: Final = (
    f":root {{ color-scheme: light dark; {_LIGHT} }}\n"
    f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}"
    """
svg.plot { --room: min(var(--left), 50%); display: block; overflow: visible;
  margin: 1rem 0 44px var(--room); width: calc(100% - var(--room) - 12px); }
.plot svg { overflow: visible; }
.plot path { vector-effect: non-scaling-stroke; }
.plot text { font-size: 12px; fill: var(--soft); }
.plot .said { fill: var(--ink); paint-order: stroke; stroke: var(--paper);
  stroke-width: 3px; }
.plot .grid { stroke: var(--line); stroke-width: 1; fill: none; }
.plot .mark { stroke: var(--ink); stroke-width: 1; stroke-dasharray: 5 4; fill: none; }
.plot .line { stroke: var(--series); stroke-width: 1.8; fill: none;
  stroke-linejoin: round; }
.plot .area, .plot .band { fill: var(--series); fill-opacity: .3; }
.plot .dot { stroke: var(--series); stroke-width: 5; stroke-linecap: round; }
.fill { fill: var(--series); }
.plot .tip { fill: transparent; }
.c0 { --series: var(--c0); } .c1 { --series: var(--c1); } .c2 { --series: var(--c2); }
.c3 { --series: var(--c3); } .c4 { --series: var(--c4); } .c5 { --series: var(--c5); }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1.5rem 1rem 4rem;
  background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif;
  overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
h3, h4 { font-size: 1rem; margin: 1.25rem 0 .5rem; }
p { margin: .35rem 0; }
.soft { color: var(--soft); font-size: .9rem; }
.good { --tone: var(--good); } .bad { --tone: var(--bad); } .note { --tone: var(--note); }
.doubt { --tone: var(--doubt); } .info { --tone: var(--info); }
.verdict { margin: 1rem 0 .5rem; padding: .6rem .9rem; background: var(--card);
  border-left: .3rem solid var(--tone); border-radius: .3rem; font-weight: 600; }
.card { border: 1px solid var(--line); border-left: .3rem solid var(--tone);
  border-radius: .3rem; padding: .6rem .9rem; }
.card strong { display: block; }
.badge { color: var(--tone); font-size: .75rem; font-weight: 700; letter-spacing: .04em;
  text-transform: uppercase; }
.id { color: var(--soft); font: .8rem ui-monospace, monospace; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr));
  gap: .6rem; margin: 1rem 0; padding: 0; list-style: none; }
.tiles li { background: var(--card); border-radius: .3rem; padding: .5rem .8rem; }
.tiles b { display: block; font-size: 1.25rem; font-variant-numeric: tabular-nums; }
figure { display: flow-root; margin: 1rem 0; }
figcaption { font-weight: 600; font-size: .9rem; }
.csv { color: var(--soft); font-size: .8rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .85rem; }
th, td { padding: .25rem .5rem; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; font-variant-numeric: tabular-nums; vertical-align: top; }
th { white-space: normal; overflow-wrap: normal; vertical-align: bottom; }
th.word, td.word { text-align: left; }
td.word { white-space: normal; overflow-wrap: normal; min-width: 5rem; }
td.word:first-child { min-width: 9rem; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
dl { display: grid; grid-template-columns: minmax(7rem, max-content) 1fr; gap: .1rem 1rem;
  margin: .5rem 0; font-size: .85rem; }
dt { color: var(--soft); } dd { margin: 0; font-variant-numeric: tabular-nums; }
@media (max-width: 40rem) { dl { grid-template-columns: 1fr; } dd { margin-bottom: .3rem; } }
details { margin-top: .75rem; } summary { cursor: pointer; }
.shares { margin: .9rem 0; } .shares p { margin: .1rem 0; }
.shares svg { display: block; width: 100%; height: 1.4rem; border-radius: .25rem; }
.key { display: flex; flex-wrap: wrap; gap: 0 1rem; font-size: .85rem;
  color: var(--soft); padding: 0; margin: .2rem 0 0; list-style: none; }
.key i { display: inline-block; width: .8rem; height: .8rem; border-radius: .15rem;
  margin-right: .35rem; vertical-align: -.1rem; background: var(--series); }
@media screen and (max-width: 40rem) {
  .plot .second { display: none; }
  thead { display: none; } tbody, tr, td { display: block; }
  tr { border-bottom: 2px solid var(--line); padding: .4rem 0; }
  table td, table td.word { display: flex; gap: 1rem; justify-content: space-between;
    white-space: normal; overflow-wrap: anywhere; min-width: 0; text-align: right;
    border: 0; padding: .1rem 0; }
  table td:empty { display: none; }
  table td::before { content: attr(data-head); color: var(--soft); text-align: left;
    flex: none; max-width: 45%; }
  table td:first-child { font-weight: 600; } }
@media print { body { max-width: none; padding: 0; font-size: 11pt; }
  .csv { display: none; }
  .scroll { overflow: visible; } td, th { white-space: normal; }
  details::details-content { content-visibility: visible; block-size: auto; }
  figure, tr, .card, .shares, .tiles { break-inside: avoid; }
  * { print-color-adjust: exact; } }
"""
)
