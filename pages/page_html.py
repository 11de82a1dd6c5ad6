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
from pages.page_style import STYLE
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
