"""The runbooks: Markdown, and HTML for a browser."""

from __future__ import annotations

import re
from functools import cache
from html import escape
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from exporter.web import page

_INSTALLED: Final = Path(__file__).with_name("runbooks")
_IN_THE_REPOSITORY: Final = Path(__file__).parents[2] / "deploy" / "runbooks"
_BLOCK: Final = re.compile(
    r"(?P<heading>#+ .*\n)|(?P<list>(?:(?:-|\d+\.) .*\n(?:(?: {2,}.*)?\n)*)+)"
    r"|(?P<code>(?: {4}.*\n)+)|(?P<text>(?:(?!- |\d+\. ).+\n)+)|\n"
)
_ITEM: Final = re.compile(r"^(?:-|\d+\.) ", re.MULTILINE)
_INLINE: Final = re.compile(r"`([^`]+)`|\*([^*]+)\*|\[([^\]]+)\]\(([^)]+)\)")
_PLAIN: Final = re.compile(r"\w[\w.:/@+-]{0,254}")


@cache
def markdown() -> dict[str, str]:
    """Return every runbook by the name of its alert and by that of its file."""
    folder = _INSTALLED if _INSTALLED.is_dir() else _IN_THE_REPOSITORY
    found = {path.name: path.read_text("utf-8") for path in folder.glob("*.md")}
    return found | {name.removesuffix(".md"): text for name, text in found.items()}


def as_page(name: str, model: str) -> tuple[bytes, str]:
    """Return a runbook as HTML, filled in with the model if any, and its security policy."""
    query = escape(f"?{urlencode({'model': model})}" if model else "")
    body = _blocks(markdown()[name], query)
    if _PLAIN.fullmatch(model):  # A shell or a query reads nothing more into it.
        body = re.sub(r"\bMODEL\b", model, body)
    status = f'<nav><a href="../{query}">status page</a></nav>'
    return page.runbook(name.removesuffix(".md"), f"{status}<main>{body}</main>")


def _blocks(text: str, query: str) -> str:
    """Return what the runbooks are written with as HTML: headings, lists, code, text."""
    parts = []
    for block in _BLOCK.finditer(text):
        found, kind = block[0], block.lastgroup
        if kind == "heading":
            marks, _, title = found.strip().partition(" ")
            parts.append(f"<h{len(marks)}>{_inline(title, query)}</h{len(marks)}>")
        elif kind == "list":
            tag, indent = ("ul", 2) if found.startswith("-") else ("ol", 3)
            items = [_less_indented(item, indent) for item in _ITEM.split(found)[1:]]
            inner = "".join(f"<li>{_blocks(item, query)}</li>" for item in items)
            parts.append(f"<{tag}>{inner}</{tag}>")
        elif kind == "code":
            parts.append(f"<pre>{escape(_less_indented(found, 4))}</pre>")
        elif kind == "text":
            parts.append(f"<p>{_inline(found.strip(), query)}</p>")
    return "".join(parts)


def _less_indented(text: str, by: int) -> str:
    return re.sub(f"^ {{{by}}}", "", text, flags=re.MULTILINE)


def _inline(text: str, query: str) -> str:
    def marked(found: re.Match[str]) -> str:
        code, stressed, title, link = found.groups()
        if code or stressed:
            return f"<code>{code}</code>" if code else f"<em>{stressed}</em>"
        if "/" in link:
            # The documentation is not served here.
            return f"{title}: {link.removeprefix('../../').partition('#')[0]}"
        return f'<a href="{link.removesuffix(".md")}{query}">{title}</a>'

    return _INLINE.sub(marked, escape(text))
