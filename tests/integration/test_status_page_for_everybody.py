"""The status page for everybody: keyboard, screen reader, phone, and hostile names."""

from __future__ import annotations

import time

import pytest
from axe_playwright_python.sync_playwright import Axe
from fake_triton import FakeModel, FakeTriton
from playwright.sync_api import expect
from status_pages import SLOS, WAIT_MS, table

pytestmark = pytest.mark.triton

HOSTILE = '<img src=x onerror="document.title=1">'

# Places whose content is wider than themselves.
CUT_OFF = """() => [...document.querySelectorAll(".scroll, td, th")]
    .filter(e => e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0)
    .map(e => e.closest(".scroll").ariaLabel)"""


@pytest.mark.parametrize("name", ["Objectives", "Readiness and probes by model"])
def test_the_keyboard_stays_where_it_is_when_sections_are_redrawn(
    playground, settings, start_sidecar, opened, name
) -> None:
    sidecar = start_sidecar(settings(playground, slos=SLOS))
    page = opened(sidecar.port)
    region = table(page, name)
    expect(region).to_be_visible(timeout=WAIT_MS)
    region.focus()
    page.evaluate("name => { document.activeElement.isOld = true; }", name)
    page.wait_for_function(
        "name => !document.querySelector(`[aria-label='${name}']`).isOld",
        arg=name,
        timeout=WAIT_MS,
    )
    expect(region).to_be_focused()
    page.keyboard.press("Tab")
    after = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert after != name, "Tab goes on from there"
    assert page.evaluate("document.activeElement !== document.body")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_keeps_anybody_from_reading_it(
    playground, settings, start_sidecar, opened, scheme
) -> None:
    sidecar = start_sidecar(settings(playground, slos=SLOS))
    sidecar.wait(lambda page: page.value("triton_model_serving", model="double") == 1)
    page = opened(sidecar.port, color_scheme=scheme)
    expect(table(page, "Objectives")).to_be_visible(timeout=WAIT_MS)
    found = Axe().run(page).response["violations"]
    assert not found, [(v["id"], v["nodes"][0]["html"]) for v in found]


def test_it_fits_a_phone(playground, settings, start_sidecar, opened) -> None:
    sidecar = start_sidecar(settings(playground, slos=SLOS))
    phone = {"width": 375, "height": 740}
    page = opened(sidecar.port, viewport=phone, is_mobile=True, has_touch=True)
    expect(table(page, "Objectives")).to_be_visible(timeout=WAIT_MS)
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    assert page.evaluate(CUT_OFF) == []
    target = table(page, "Objectives").get_by_role("cell").nth(1)
    assert (
        target.evaluate("e => getComputedStyle(e, '::before').content") == '"target "'
    )


def test_names_are_text_whatever_they_say(settings, start_sidecar, opened) -> None:
    with FakeTriton([FakeModel(HOSTILE)]) as fake:
        sidecar = start_sidecar(settings(fake))
        sidecar.wait(lambda page: page.value("triton_model_ready", model=HOSTILE) == 1)
        page = opened(sidecar.port)
        rows = table(page, "Readiness and probes by model")
        expect(rows).to_contain_text(HOSTILE, timeout=WAIT_MS)
        time.sleep(1)
        assert page.title() == "tritonwatch"
        assert page.locator("img").count() == 0
