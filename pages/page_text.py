"""A report for a terminal: the blocks of the page, without its figures."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from pages.blocks import (
    Facts,
    Fold,
    Items,
    Paragraph,
    Section,
    Shares,
    Table,
    Tiles,
    Verdict,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from pages.blocks import Block, Document

_UNBOUNDED: Final = 1 << 20


def render(document: Document, width: int = _UNBOUNDED) -> str:
    """The lines, ending with a newline; tables and bars keep their own width."""
    lines = [document.title]
    for line in filter(None, document.about):
        lines += _wrapped(line, width)
    lines += blocks_text(document.blocks, "  ", width)
    return "\n".join(lines) + "\n"


def blocks_text(
    blocks: Iterable[Block], indent: str = "", width: int = _UNBOUNDED
) -> Iterator[str]:
    """The lines of some blocks, each behind the indent."""
    for block in blocks:
        for line in _lines(block, width - len(indent)):
            yield f"{indent}{line}".rstrip()


def _lines(block: Block, width: int) -> Iterator[str]:  # noqa: C901 - one case a kind
    match block:
        case Verdict() | Paragraph():
            yield from _wrapped(block.text, width)
        case Items():
            for text in block.texts:
                yield from _wrapped(text, width, "- ")
        case Facts(in_line=True):
            pairs = (f"{name}: {value}" for name, value in block.pairs)
            yield from _wrapped("; ".join(pairs), width, "· ")
        case Facts():
            yield from _pairs(block.pairs, width)
        case Tiles():
            yield from _pairs(block.values.items(), width)
        case Table():
            yield from _aligned([block.heads, *block.rows])
        case Shares():
            said = f"{block.name}: {block.whole}, {block.note}: {block.largest}"
            yield from _wrapped(said, width)
        case Section():
            inner = list(blocks_text(block.blocks, "  ", width))
            yield from [block.title, *inner] if inner else ()
        case Fold() if block.in_text:
            head = f"{block.badge.upper()}  {block.title}".strip()
            label = f"  [{block.label}]" if block.label else ""
            yield from _wrapped(f"{head}{label}", width)
            yield from blocks_text(block.blocks, "  ", width)
        case _:
            return


def _pairs(pairs: Collection[tuple[str, str]], width: int) -> Iterator[str]:
    longest = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        yield from _wrapped(value, width, f"{name:<{longest}}  ")


def _wrapped(text: str, width: int, label: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=label,
        subsequent_indent=" " * min(len(label), width // 2),
        break_on_hyphens=False,
    ) or [label.rstrip()]


def _aligned(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Columns as wide as their widest cell, the first to the left."""
    cells = [tuple(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        first, *others = (
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join((first, *others)).rstrip()
