"""The status page for everybody: keyboard, screen reader, phone, and hostile names."""

from __future__ import annotations

import time

import pytest
from axe_playwright_python.sync_playwright import Axe
from fake_triton import FakeModel, FakeTriton
from fake_triton.behaviours import INTERNAL
from playwright.sync_api import expect
from status_pages import SLOS, WAIT_MS, table
from waiting import wait_until

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


def test_what_is_normal_is_folded_and_what_is_wrong_is_open(
    settings, start_sidecar, opened
) -> None:
    with FakeTriton([FakeModel("m")]) as fake:
        # A busy machine shall not make anything look wrong.
        server = {"kind": "server", "interval_seconds": 10}
        config = settings(fake, probe={"timeout_seconds": 10}, collectors=[server])
        sidecar = start_sidecar(config | {"slos": SLOS})
        sidecar.wait(lambda page: page.value("triton_model_serving", model="m") == 1)
        page = opened(sidecar.port, folded=True)
        serves, goals = (
            page.locator(f"details#{name}")
            for name in ("does-it-really-serve", "service-level-objectives")
        )
        expect(serves).to_contain_text("1 of 1", timeout=WAIT_MS)
        expect(page.locator("details[open]")).to_have_count(0)
        assert page.evaluate("document.documentElement.scrollHeight") < 1500
        links = page.get_by_role("navigation", name="Sections").get_by_role("link")
        targets = [link.get_attribute("href") for link in links.all()]
        assert "#service-level-objectives" in targets
        for target in targets:
            expect(page.locator(target)).to_be_visible()
        links.filter(has_text="objectives").press("Enter")
        expect(goals).to_have_attribute("open", "")
        goals.locator("summary").press("Enter")
        expect(goals).not_to_have_attribute("open", "")
        fake.on("infer", model="m").reply(INTERNAL)
        expect(serves).to_have_attribute("open", "", timeout=WAIT_MS)
        expect(links.filter(has_text="serve")).to_have_class("bad")
        expect(page.locator("#recent-events")).not_to_have_attribute("open", "")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_keeps_anybody_from_reading_it(
    playground, settings, start_sidecar, opened, scheme
) -> None:
    sidecar = start_sidecar(settings(playground, slos=SLOS))
    sidecar.wait(lambda page: page.value("triton_model_serving", model="double") == 1)
    page = opened(sidecar.port, folded=True, color_scheme=scheme)
    expect(page.locator("#service-level-objectives")).to_be_visible(timeout=WAIT_MS)
    for press in ("Unfold all", "Fold all"):
        found = Axe().run(page).response["violations"]
        assert not found, [(v["id"], v["nodes"][0]["html"]) for v in found]
        page.get_by_role("button", name=press, exact=True).click()


def test_it_fits_a_phone(playground, settings, start_sidecar, opened) -> None:
    sidecar = start_sidecar(settings(playground, slos=SLOS))
    phone = {"width": 375, "height": 740}
    page = opened(sidecar.port, viewport=phone, is_mobile=True, has_touch=True)
    expect(table(page, "Objectives")).to_be_visible(timeout=WAIT_MS)
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    assert page.evaluate(CUT_OFF) == []
    target = table(page, "Objectives").get_by_role("cell").nth(1)
    # A cell that the page has drawn anew meanwhile has no style.
    content = "e => getComputedStyle(e, '::before').content"
    wait_until(
        lambda: target.evaluate(content) == '"target "', "the label is not there"
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
