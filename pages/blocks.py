"""The parts of a report, as data. Every text in them may come from outside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from pages.units import facts, percent

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pages.plots import Plot

_SMALL: Final = 0.05
Tone = Literal["good", "bad", "note", "doubt", "info"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result in a sentence, coloured."""

    tone: Tone
    text: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A sentence or two; `soft` is a remark."""

    text: str
    soft: bool = False


@dataclass(frozen=True, slots=True)
class Items:
    """A bullet list."""

    texts: Sequence[str]


@dataclass(frozen=True, slots=True)
class Tiles:
    """A few numbers, large."""

    values: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows below heads. Columns of numbers are aligned to the right."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values; a mapping as a value is spread out."""

    values: Mapping[str, Any] | Sequence[tuple[str, Any]]
    in_line: bool = False
    """True where the text form puts all facts on one line."""

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Each name with its value on one line."""
        values = self.values
        pairs = values.items() if isinstance(values, Mapping) else values
        return facts(pairs)


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot; a page has it, a text has not."""

    plot: Plot


@dataclass(frozen=True, slots=True)
class Shares:
    """A whole divided into named parts, as one bar. Ratios are 0 to 1."""

    name: str
    whole: str
    parts: Mapping[str, float]
    note: str = ""

    @property
    def largest(self) -> str:
        """The parts from 5 % up in words, the largest first."""
        ordered = sorted(self.parts.items(), key=lambda part: -part[1])
        return ", ".join(f"{name} {percent(r)}" for name, r in ordered if r >= _SMALL)


@dataclass(frozen=True, slots=True)
class Section:
    """Blocks below a heading; without blocks it is left out."""

    title: str
    blocks: Iterable[Block]

    def __post_init__(self) -> None:
        _keep(self)


@dataclass(frozen=True, slots=True)
class Fold:
    """Blocks that unfold on a page. `in_text` is whether a text has them as well."""

    title: str
    blocks: Iterable[Block]
    tone: Tone | None = None
    badge: str = ""
    label: str = ""
    """A stable name to search for."""
    is_open: bool = False
    in_text: bool = True

    def __post_init__(self) -> None:
        _keep(self)


Block: TypeAlias = (
    Verdict
    | Paragraph
    | Items
    | Tiles
    | Table
    | Facts
    | Figure
    | Shares
    | Section
    | Fold
)


@dataclass(frozen=True, slots=True)
class Document:
    """A whole report. `about` has the time and place of its making in a few words."""

    title: str
    blocks: Iterable[Block]
    about: Sequence[str] = field(default=())

    def __post_init__(self) -> None:
        _keep(self)


def _keep(parent: Section | Fold | Document) -> None:
    """Make a tuple of the blocks: a generator would serve one of page and text only."""
    object.__setattr__(parent, "blocks", tuple(parent.blocks))
