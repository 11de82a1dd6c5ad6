"""`make docs` publishes every page, each link of which leads to a page of the site."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import documents
import pytest
import yaml
from documents import ROOT

SITE: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
# Listed and generated pages, which `documents.pages` leaves out.
GENERATED = {"METRICS.md", "CONFIG.md", "CHANGELOG.md"}


def entries(nav: list[dict[str, Any]]) -> list[str]:
    """Return the pages and folders of `nav`, in their order."""
    found = []
    for entry in nav:
        for value in entry.values():
            found += entries(value) if isinstance(value, list) else [value]
    return found


def published() -> list[str]:
    """Return every page of the site; a folder stands for its pages."""
    found = []
    for name in entries(SITE["nav"]):
        below = sorted((ROOT / name).glob("*.md"))
        found += [str(p.relative_to(ROOT)) for p in below] or [name]
    return found


def test_the_navigation_has_every_page_once() -> None:
    assert sorted(published()) == sorted({*documents.pages(), *GENERATED})


@pytest.mark.parametrize("page", published())
def test_every_link_leads_to_a_page_of_the_site_or_to_no_page(page) -> None:
    pages = set(published())
    for link in documents.links(page):
        path = link.partition("#")[0]
        target = ((ROOT / page).parent / path).resolve() if path else ROOT / page
        assert target.exists(), link
        if target.suffix == ".md":
            assert str(target.relative_to(ROOT)) in pages, link


def test_the_site_loads_nothing_from_elsewhere() -> None:
    assert SITE["theme"]["font"] is False
    for script in SITE["extra"]["polyfills"]:
        assert (ROOT / SITE["docs_dir"] / script).is_file()


def test_broken_links_fail_the_build() -> None:
    kinds = {**SITE["validation"]["links"], **SITE["validation"]["nav"]}
    assert set(kinds.values()) == {"warn"}
    assert SITE["strict"] is True
    recipe = (ROOT / "Makefile").read_text("utf-8").partition("\ndocs:")[2]
    command = recipe.splitlines()[1].split()
    assert command[-1] == "build", "--quiet would hide the warnings that count"


def test_the_script_of_the_search_has_its_licence() -> None:
    (script,) = Path(ROOT / "docs" / "vendor").glob("*.js")
    assert "MIT License" in script.read_text("utf-8")
