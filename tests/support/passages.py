"""What programs write into a page: a passage between two marks, nothing of it by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def page_with(name: str, content: str, page: str) -> str:
    """The page with this passage in the place of the one of that name.

    Raises:
        ValueError: the page has no such passage.
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, begun, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    if not (begun and ended):
        raise ValueError(f"found no {begin} … {end} in the page; want one")
    return f"{before}{begin}\n{content.strip()}\n{end}{after}"


def show(name: str, content: str, page: Path, *, write: bool) -> None:
    """Write it into the page, or print it."""
    if write:
        page.write_text(page_with(name, content, page.read_text("utf-8")), "utf-8")
    else:
        print(content.strip())
