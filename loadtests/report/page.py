"""What every report page has: head, style, tables. One file, nothing from elsewhere."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Any, Final

from loadtests.report import svg

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_CSP: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)
_STYLE: Final = (
    """
:root { color-scheme: light dark; --paper: #fff; --ink: #1b1f24; --soft: #59636e;
  --line: #d8dee4; --card: #f6f8fa; --bad: #b3261e; --good: #1a7037; --note: #8a5a00;
  LIGHT }
@media (prefers-color-scheme: dark) { :root { --paper: #0f1318; --ink: #e6eaef;
  --soft: #9aa5b1; --line: #2d343c; --card: #171c22; --bad: #ff8a80; --good: #6fd08c;
  --note: #e8b339; DARK } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem 1rem 4rem;
  background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif;
  overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
p { margin: .25rem 0; }
.soft { color: var(--soft); font-size: .9rem; }
.verdict { margin: 1rem 0 .5rem; padding: .6rem .9rem; background: var(--card);
  border-left: .3rem solid var(--tone); border-radius: .3rem; font-weight: 600; }
.good { --tone: var(--good); } .bad { --tone: var(--bad); } .note { --tone: var(--note); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr));
  gap: .6rem; margin: 1rem 0; padding: 0; list-style: none; }
.tiles li { background: var(--card); border-radius: .3rem; padding: .5rem .8rem; }
.tiles b { display: block; font-size: 1.25rem; font-variant-numeric: tabular-nums; }
figure { margin: 1rem 0; }
@media (max-width: 40rem) { figure { overflow-x: auto; } svg.plot { min-width: 34rem; } }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .85rem; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: right;
  white-space: nowrap; font-variant-numeric: tabular-nums; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
dl { display: grid; grid-template-columns: minmax(7rem, max-content) 1fr; gap: .1rem 1rem;
  margin: .5rem 0; font-size: .85rem; }
dt { color: var(--soft); } dd { margin: 0; }
details { margin-top: .75rem; } summary { cursor: pointer; }
""".replace("LIGHT", svg.LIGHT).replace("DARK", svg.DARK)
    + svg.STYLE
)


def page(title: str, parts: Iterable[str]) -> str:
    """The whole file; `parts` are HTML."""
    return "\n".join(
        (
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_CSP}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="referrer" content="no-referrer">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
            *parts,
            "</body></html>\n",
        )
    )


def verdict(tone: str, sentence: str) -> str:
    """The coloured sentence at the top."""
    return f'<p class="verdict {tone}">{escape(sentence)}</p>'


def tiles(values: Mapping[str, str]) -> str:
    """Few numbers, large."""
    items = "".join(
        f"<li><b>{escape(value)}</b>{escape(name)}</li>"
        for name, value in values.items()
    )
    return f'<ul class="tiles">{items}</ul>'


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table that scrolls by itself on a narrow screen."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in heads)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def figure(plot: svg.Plot) -> str:
    """A plot."""
    # What scrolls on a narrow screen has to be reached by keyboard as well.
    return f'<figure tabindex="0">{plot.render()}</figure>'


def facts(values: Mapping[str, Any]) -> str:
    """Names and values in two columns; what is a mapping itself is spread out."""
    items = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(_fact(value))}</dd>"
        for name, value in values.items()
    )
    return f"<dl>{items}</dl>"


def _fact(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_fact(item)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_fact, value))
    if isinstance(value, float):
        return f"{value:.6g}"
    return "none" if value is None else str(value)


def time(seconds: float | None) -> str:
    """A duration as one says it."""
    if seconds is None or not math.isfinite(seconds):
        return "unknown"
    if abs(seconds) < 1e-3:  # noqa: PLR2004
        return f"{seconds * 1e6:.3g} µs"
    return f"{seconds * 1e3:.4g} ms" if abs(seconds) < 1 else f"{seconds:.4g} s"


def share(ratio: float | None) -> str:
    """A share in percent."""
    return "unknown" if ratio is None else f"{ratio:.3%}"


def number(value: float | None) -> str:
    """Four digits."""
    return "unknown" if value is None else f"{value:.4g}"
