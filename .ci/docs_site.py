"""Publish the pages of `nav` in mkdocs.yml, each under its path in the repository.

mkdocs reads one folder; these pages are next to the code that they describe.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import TYPE_CHECKING, Any

from mkdocs.structure.files import File
from pymdownx.slugs import slugify

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#:]+)\)")
CODE_WITH_BARS = re.compile(r"`[^`\n]*\\\|[^`\n]*`")


def on_config(config: MkDocsConfig) -> None:
    """Put the pages of a folder in its place in `nav`; make anchors as GitHub does."""
    config.nav = [spelled_out(entry) for entry in config.nav or []]
    config.mdx_configs["toc"] = {"slugify": slugify(case="lower")}


def spelled_out(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry of `nav` with the pages of its folders."""
    ((title, value),) = entry.items()
    if isinstance(value, list):
        return {title: [spelled_out(below) for below in value]}
    if (ROOT / value).is_dir():
        return {title: [f"{value}/index.md", *pages_of(value)]}
    return entry


def pages_of(folder: str) -> list[str]:
    """Return the pages in a folder, in the order of their names."""
    return [f"{folder}/{page.name}" for page in sorted((ROOT / folder).glob("*.md"))]


def pages_in(nav: list[Any]) -> list[str]:
    """Return every page of `nav`, in its order."""
    found = []
    for entry in nav:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            found += pages_in(value) if isinstance(value, list) else [value]
    return found


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Replace the pages that mkdocs found by those of `nav`, and add linked files."""
    for page in files.documentation_pages():
        files.remove(page)
    for name in pages_in(config.nav or []):
        if name.endswith("/index.md"):
            add(files, config, name, content=index_of(name.removesuffix("/index.md")))
            continue
        add(files, config, name)
        text = (ROOT / name).read_text("utf-8")
        for _, target in LINK.findall(text):
            path = normpath(str(PurePosixPath(name).parent / target))
            if (ROOT / path).is_file() and not path.endswith(".md"):
                add(files, config, path)


def add(files: Files, config: MkDocsConfig, name: str, **content: str) -> None:
    """Add a file under its path in the repository, once."""
    if files.get_file_from_path(name) is None:
        source = content or {"abs_src_path": str(ROOT / name)}
        files.append(File.generated(config, name, **source))


def index_of(folder: str) -> str:
    """Return a page that lists the pages of a folder."""
    lines = [f"# {PurePosixPath(folder).name.capitalize()}", ""]
    for page in pages_of(folder):
        title = (ROOT / page).read_text("utf-8").split("\n")[0].removeprefix("# ")
        lines.append(f"- [{title}]({PurePosixPath(page).name})")
    return "\n".join(lines)


def on_page_markdown(markdown: str, page: Page, files: Files, **_: Any) -> str:
    """Let links to folders lead to their page, or be text where they have none."""
    here = PurePosixPath(page.file.src_uri).parent

    def mended(link: re.Match[str]) -> str:
        text, target = link.groups()
        path = normpath(str(here / target))
        if not (ROOT / path).is_dir():
            return link[0]
        for name in ("index.md", "README.md"):
            if files.get_file_from_path(f"{path}/{name}"):
                return f"[{text}]({target.rstrip('/')}/{name})"
        return text

    return LINK.sub(mended, CODE_WITH_BARS.sub(as_html, markdown))


def as_html(code: re.Match[str]) -> str:
    r"""Return code of a table as HTML: Python-Markdown would show the \ of a `\|`."""
    text = escape(code[0].strip("`").replace("\\|", "|"))
    return f"<code>{text.replace('|', '&#124;')}</code>"
