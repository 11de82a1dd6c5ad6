"""The report of an experiment in a real browser: readable on a phone and by everybody."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from axe_playwright_python.sync_playwright import Axe
from machine_browser import chromium
from simulated_outages import evidence, poisson, run

from loadtests.chaos.measuring.observations import AlertChange, Check
from loadtests.chaos.report.chaos_document import document
from loadtests.chaos.results import scorecard
from loadtests.chaos.results.journal_file import Journal
from pages import page_html

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from playwright.sync_api import Browser


PHONE_WIDTH = 375


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    with chromium() as running:
        yield running


def journal() -> Journal:
    load = run(poisson(100, 20), refuses=((5.0, 6.5),))
    seen = evidence(
        load,
        inject=5.0,
        revert=6.5,
        extension={"detect": {"metric": "triton_up == 0", "alert": "TritonDown"}},
        checks=tuple(
            Check(0.5 * i, "during", "availability", 1.0, met=not 10 <= i <= 13)
            for i in range(40)
        ),
        alerts=(AlertChange(8.0, "TritonDown", {}, "firing"),),
        alerts_watched=True,
        leftovers=("a process with a name that is longer than a phone is wide " * 3,),
    )
    return Journal.of([seen])


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["journal", "scorecard"])
def test_a_page_fits_a_phone_loads_nothing_and_bars_nobody(
    browser: Browser, tmp_path: Path, kind: str, scheme: str
) -> None:
    file = tmp_path / "page.html"
    found = journal()
    card = scorecard.scorecard([found])
    shown = document(card, found if kind == "journal" else None)
    file.write_text(page_html.render(shown), "utf-8")
    context = browser.new_context(
        viewport={"width": PHONE_WIDTH, "height": 740},
        is_mobile=True,
        color_scheme="dark" if scheme == "dark" else "light",
    )
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    width = page.evaluate("document.documentElement.scrollWidth")
    labels = page.evaluate(
        "[...document.querySelectorAll('.plot text')].map("
        "e => parseFloat(getComputedStyle(e).fontSize) * e.getScreenCTM().a)"
    )
    found_wrong = Axe().run(page)
    page.set_viewport_size({"width": 1440, "height": 900})
    cut_off = page.evaluate(
        "[...document.querySelectorAll('.scroll')].map(e => e.scrollWidth - e.clientWidth)"
    )
    context.close()
    assert max(cut_off) <= 0, "columns of a table are cut off on a desktop"
    assert asked == [file.as_uri()]
    assert width <= PHONE_WIDTH
    assert min(labels, default=12) >= 11, "labels of a chart are too small"
    assert found_wrong.violations_count == 0, found_wrong.generate_report()
