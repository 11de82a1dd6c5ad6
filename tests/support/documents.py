"""The project's pages, as far as tests run them: fenced blocks, commands, links."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_STATUSES: Final = re.compile(r"\s+# (\d(?:(?:, | or )\d)*)(?::.*)?$")
_FILE: Final = re.compile(r"\A# ([\w.-]+\.ya?ml)\n")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file(self) -> str | None:
        """What the file is called whose contents these are."""
        found = _FILE.match(self.text)
        return found[1] if found else None


@dataclass(frozen=True)
class Line:
    """A command line, and the exit statuses that its comment allows."""

    command: str
    statuses: frozenset[int]


def pages() -> list[str]:
    """Every page that people read, but what is generated and what only lists."""
    left_out = {"METRICS.md", "CONFIG.md", "CHANGELOG.md"}
    hidden = {".venv", ".triton", ".git", "build", "node_modules"}
    found = [
        path.relative_to(ROOT)
        for path in ROOT.rglob("*.md")
        if not hidden & set(path.relative_to(ROOT).parts)
    ]
    return sorted(
        str(p) for p in found if str(p) not in left_out and p.parts[0][0] != "."
    )


def text_of(page: str) -> str:
    return (ROOT / page).read_text("utf-8")


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page, in their order."""
    text = text_of(page)
    return [
        Block(page, text.count("\n", 0, found.start()) + 1, found[1], found[2])
        for found in _FENCE.finditer(text)
    ]


def lines(block: Block) -> list[Line]:
    """The commands of a block of shell, continued lines joined."""
    found = []
    for line in block.text.replace("\\\n", " ").splitlines():
        said = _STATUSES.search(line)
        statuses = re.findall(r"\d", said[1]) if said else ["0"]
        command = line[: said.start()] if said else re.sub(r"\s+# .*$", "", line)
        if command.strip():
            found.append(Line(command.strip(), frozenset(map(int, statuses))))
    return found


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub and Grafana's viewers make it."""
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", "-")


def anchors(page: str) -> set[str]:
    """Every anchor of a page."""
    text = _FENCE.sub("", text_of(page))
    return {slug(h) for h in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


def links(page: str) -> list[str]:
    """The targets of a page's links, those to elsewhere left out."""
    text = _FENCE.sub("", text_of(page))
    found = re.findall(r"\]\(([^)\s]+)\)", text)
    return [target for target in found if "://" not in target]


def sub_parsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The sub-commands of a command."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}
