"""Every panel of every dashboard, drawn by Grafana's own components from the demo's data."""

from __future__ import annotations

import contextlib
import math
import time
from typing import TYPE_CHECKING, Any

import pytest
from grafana_panels import BUILT, Span, answers, draw, require_panels
from machine_browser import chromium
from monitoring import Job, Prometheus, free_port
from requirements import require
from running_demo import running_demo
from waiting import patience

from grafana import build

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from playwright.sync_api import Page

pytestmark = [pytest.mark.triton, pytest.mark.slow, pytest.mark.timeout(1500)]

# Panels that the demo leaves empty, and what each says of it.
EMPTY = {
    "fleet/Failures seen by clients": "kind: access_log",
    "latency/Failed probes": "No probe failed",
    "energy/FLOPS utilisation": "`cost:`",
    "energy/Sensor faults": "No power sensor has a fault",
    "energy/GPU power": "No GPU was found",
    "energy/GPU temperature": "No GPU was found",
    "energy/GPU throttling": "No GPU was found",
    "energy/Driver errors (XID)": "No GPU was found",
    "drift/Retrain within": "unknown",
    "answers/Duration of the latest load": "kind: cold_start",
    "runs/Active runs": "--sidecar URL",
    "runs/Phases of runs": "--sidecar URL",
    "runs/Lowest headroom": "no search",
    "runs/Latest capacity searches": "tritonwatch load capacity --sidecar URL",
    "sidecar/Pushes": "`otlp:`",
    "sidecar/Pushes that failed in a row": "`otlp:`",
}
# Filled or empty by the load of the machine: the windows may not separate the models.
UNSURE = {"energy/Error of a model's share"}
# A desktop and a phone.
SCREENS = ((1440, "dark"), (390, "light"))
PATIENCE_SECONDS = 300
# The time that is drawn, and what goes before it: rates over a minute rise meanwhile.
SHOWN_SECONDS, RAMP_SECONDS = 150, 90
# Enough traces for every p99, however slow the machine is.
QUIET = ("--scenario-after", "9999", "--trace-rate", "2")
# What is kept of a board's beginning for the documentation.
TOP = {"x": 0, "y": 0, "width": 1440, "height": 1010}


@contextlib.contextmanager
def page_errors(page: Page) -> Generator[None]:
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield
    assert errors == []


def test_every_panel_is_drawn_and_an_empty_one_says_why(
    triton_environment, tmp_path
) -> None:
    require_panels()
    require("prometheus")
    port = free_port()
    since = time.time()
    with (
        running_demo(tmp_path / "log", "--port", str(port), *QUIET),
        Prometheus(tmp_path, Job([port])) as server,
        chromium() as browser,
    ):
        boards = {
            name.removeprefix("tritonwatch-").removesuffix(".json"): document
            for name, document in build.documents().items()
        }
        span, found = _filled(server, boards, since)
        empty = set()
        for (name, board), (width, theme) in _each(boards):
            page = browser.new_page(viewport={"width": width, "height": 900})
            with page_errors(page):
                shown = draw(page, board, found[name], span, theme)
            panels = {p["id"]: p for p in board["panels"] if p["type"] != "row"}
            assert {panel.id for panel in shown} == panels.keys()
            for panel in shown:
                title = f"{name}/{panels[panel.id]['title']}"
                assert not panel.failed, f"{title} at {width} px: {panel.failed}"
                assert panel.hidden <= 0, f"{title} at {width} px is cut off"
                if panel.values == 0:
                    empty.add(title)
                    assert EMPTY.get(title, "not expected to be empty") in panel.text
                elif panels[panel.id]["type"] != "stat":
                    assert panel.drawn > 0, f"{title} at {width} px: nothing drawn"
                    assert panel.no_value == "", title
                else:
                    unknown = panels[panel.id]["fieldConfig"]["defaults"]["noValue"]
                    said = panel.text.removeprefix(panels[panel.id]["title"]).strip()
                    assert said not in {"", unknown}, title
            _keep(page, f"{name}-{width}", top=width == TOP["width"])
            page.close()
    assert empty - UNSURE == EMPTY.keys()


def _each(boards: dict[str, Any]) -> Iterator[tuple[tuple[str, Any], tuple[int, str]]]:
    for board in boards.items():
        for screen in SCREENS:
            yield board, screen


def _filled(
    server: Prometheus, boards: dict[str, Any], since: float
) -> tuple[Span, dict[str, Any]]:
    """Return Prometheus' data once every panel that must have data has some."""
    deadline = time.monotonic() + patience(PATIENCE_SECONDS)
    while True:
        now = time.time()
        span = Span(now - SHOWN_SECONDS, now)
        found = {name: answers(server, b, span) for name, b in boards.items()}
        missing = {
            title
            for name, board in boards.items()
            for panel in board["panels"]
            if (title := f"{name}/{panel['title']}") not in EMPTY.keys() | UNSURE
            and panel["type"] != "row"
            and not any(map(_has_numbers, found[name][str(panel["id"])].values()))
        }
        if not missing and now > since + RAMP_SECONDS + SHOWN_SECONDS:
            return span, found
        assert time.monotonic() < deadline, f"without data: {sorted(missing)}"
        time.sleep(5)


def _has_numbers(answer: dict[str, Any]) -> bool:
    values = (
        value
        for series in answer["result"]
        for _, value in series.get("values", [series.get("value")])
    )
    return any(math.isfinite(float(value)) for value in values)


def _keep(page: Page, name: str, *, top: bool) -> None:
    """Pictures to look at, and for the documentation."""
    folder = BUILT / "pictures"
    page.screenshot(path=folder / f"{name}.png", full_page=True)
    if top:
        page.screenshot(path=folder / f"{name}-top.png", clip=TOP)
