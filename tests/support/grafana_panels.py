"""Dashboards drawn by Grafana's own components (grafana/panels), without Grafana's server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import promql
import pytest

if TYPE_CHECKING:
    from monitoring import Prometheus
    from playwright.sync_api import Page

BUILT: Final = Path(__file__).parents[2] / "build" / "grafana"
_STEP_SECONDS: Final = "2"
_SETTLED_MS: Final = 500
_PLACE: Final = "http://grafana.invalid/"
_PAGE: Final = '<!doctype html><meta charset="utf-8"><body style="margin:0"></body>'
_SHOWN: Final = """() => [...document.querySelectorAll("section[data-values]")].map(section => ({
    id: Number(section.dataset.panel),
    values: Number(section.dataset.values),
    text: section.innerText,
    failed: section.querySelector(".failed")?.innerText ?? "",
    no_value: section.querySelector(".no-value")?.innerText ?? "",
    drawn: section.querySelectorAll("canvas, [role=gridcell], .heatmap i, .bars i").length,
    hidden: section.scrollWidth - section.clientWidth,
}))"""


@dataclass(frozen=True)
class Span:
    """The time a dashboard shows, in seconds since 1970."""

    start: float
    end: float


def require_panels() -> Path:
    """The built components."""
    script = BUILT / "panels.js"
    if not script.is_file():
        # Too large for `make parts`, so their absence is no gap, in CI neither.
        pytest.skip("Grafana's components are not built: make grafana-panels")
    return script


def answers(
    server: Prometheus, dashboard: dict[str, Any], span: Span
) -> dict[str, dict[str, Any]]:
    """Return Prometheus' answers to each panel's queries, by panel and ref id."""
    return {
        str(panel["id"]): {
            target["refId"]: _answer(server, dashboard, panel, target, span)
            for target in panel["targets"]
        }
        for panel in dashboard["panels"]
        if panel["type"] != "row"
    }


def _answer(
    server: Prometheus,
    dashboard: dict[str, Any],
    panel: dict[str, Any],
    target: dict[str, Any],
    span: Span,
) -> Any:
    query = target["expr"]
    repeated = panel.get("repeat")
    if repeated:
        # Grafana draws one panel a value, at first none; the first will do.
        variables = {v["name"]: v for v in dashboard["templating"]["list"]}
        asked = promql.filled_in(variables[repeated]["query"])
        selector = asked.removeprefix("label_values(").rpartition(",")[0]
        values = server.get(f"label/{repeated}/values", **{"match[]": selector})
        if not values:
            return {"resultType": "vector", "result": []}
        query = query.replace(f"${repeated}", values[0])
    query = promql.filled_in(query)
    if target.get("instant"):
        return server.get("query", query=query, time=str(span.end))
    window = {"start": str(span.start), "end": str(span.end), "step": _STEP_SECONDS}
    return server.get("query_range", query=query, **window)


@dataclass(frozen=True)
class Shown:
    """One panel as it was drawn."""

    id: int
    values: int
    """The number of values that its queries returned."""
    text: str
    failed: str
    """The error that its component raised, or nothing."""
    no_value: str
    """The text in place of a chart or table; empty where there is one."""
    drawn: int
    """Its canvases, cells and bars."""
    hidden: int
    """Pixels of its width that cannot be seen."""


def draw(
    page: Page, dashboard: dict[str, Any], found: dict[str, Any], span: Span, theme: str
) -> list[Shown]:
    """Draw it on the page; what each panel shows."""
    # Nothing is asked there: the components read localStorage, so there has to be an origin.
    page.route(
        _PLACE, lambda route: route.fulfill(body=_PAGE, content_type="text/html")
    )
    page.goto(_PLACE)
    page.add_style_tag(path=BUILT / "panels.css")
    page.add_script_tag(path=BUILT / "panels.js")
    drawing = {
        "dashboard": dashboard,
        "answers": found,
        "from": span.start,
        "to": span.end,
        "theme": theme,
    }
    page.evaluate("drawing => drawDashboard(drawing)", drawing)
    # Tables are drawn only where they can be seen.
    height = page.evaluate("document.documentElement.scrollHeight")
    page.set_viewport_size({"width": page.viewport_size["width"], "height": height})
    page.wait_for_timeout(_SETTLED_MS)
    return [Shown(**shown) for shown in page.evaluate(_SHOWN)]
