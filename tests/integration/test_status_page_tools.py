"""Charts and tables of the status page: rates, zoom, CSV."""

from __future__ import annotations

import contextlib
import csv
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fake_triton import FakeModel, FakeTriton
from meanwhile import repeated
from playwright.sync_api import expect
from status_pages import WAIT_MS, table
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Generator

pytestmark = pytest.mark.triton

SHOWN = "() => [latencyChart.plot.scales.x.min, latencyChart.plot.scales.x.max]"


@contextlib.contextmanager
def steady(fake: FakeTriton, model: str, per_second: float) -> Generator[None]:
    """Let a model serve so many requests a second, however late this thread is."""
    begun, served = time.monotonic(), 0

    def serve() -> None:
        nonlocal served
        due = int(per_second * (time.monotonic() - begun))
        if due > served:
            fake.served(model, due - served)
        served = due

    with repeated(serve, 0.02):
        yield


def test_rates_neither_rise_nor_fall_with_the_moments_of_reading(
    settings, start_sidecar, opened
) -> None:
    per_second, seen = 100, []
    with FakeTriton([FakeModel("m")]) as fake, steady(fake, "m", per_second):
        every_five = {"kind": "statistics", "interval_seconds": 5}
        server = {"kind": "server", "interval_seconds": 0.5}
        config = settings(fake, collectors=[server, every_five])
        page = opened(start_sidecar(config).port)

        def known() -> bool:
            seen[:] = page.evaluate(
                "(rates.lines.get('m') ?? []).filter((value) => value !== null)"
            )
            return len(seen) >= 6

        wait_until(known, "rates of three reads")
        # A page that was just opened has seen one read, and the rates that were recorded.
        page.reload()
        page.wait_for_function(
            "() => reads.length === 1 && Math.abs(Number(document.querySelector('.tile:nth-child(2) b')"
            f".textContent) - {per_second}) < 30",
            timeout=WAIT_MS,
        )
    assert seen == pytest.approx([per_second] * len(seen), rel=0.3)


def test_a_zoomed_chart_stays_as_it_is_until_a_double_click(
    playground, settings, start_sidecar, opened
) -> None:
    sidecar = start_sidecar(settings(playground, probe={"interval_seconds": 0.2}))
    page = opened(sidecar.port)
    over = page.locator("#latency .u-over")
    expect(over).to_be_visible(timeout=WAIT_MS)
    # A chart shows a minute at least: this one gets hours to zoom in.
    page.evaluate(
        """() => latencies.forEach((history) => history.begin({
            times: [0, 1, 2].map((hour) => Date.now() / 1000 - 3600 * (4 - hour)),
            lines: { p50: [0.01, 0.02, 0.03] },
        }))"""
    )
    page.wait_for_function(
        f"() => {{ const [a, b] = ({SHOWN})(); return 10000 < b - a && b - a < 20000; }}",
        timeout=WAIT_MS,
    )
    box = over.bounding_box()
    y = box["y"] + 50
    page.mouse.move(box["x"] + 0.2 * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.4 * box["width"], y)
    page.mouse.up()
    zoomed = page.evaluate(SHOWN)
    assert 1000 < zoomed[1] - zoomed[0] < 5000
    with page.expect_response("**/api/v1/status"):
        pass
    with page.expect_response("**/api/v1/status"):
        pass
    assert page.evaluate(SHOWN) == zoomed
    over.dblclick()
    page.wait_for_function(
        f"() => {{ const [a, b] = ({SHOWN})(); return 10000 < b - a && b - a < 20000; }}",
        timeout=WAIT_MS,
    )


def test_a_table_is_a_file_in_which_no_name_is_a_formula(
    settings, start_sidecar, opened
) -> None:
    name = '=1+"a",b'
    with FakeTriton([FakeModel(name)]) as fake:
        sidecar = start_sidecar(settings(fake))
        sidecar.wait(lambda page: page.value("triton_model_serving", model=name) == 1)
        page = opened(sidecar.port)
        models = table(page, "Models")
        expect(models).to_contain_text("SERVING", timeout=WAIT_MS)
        with page.expect_download() as download:
            models.get_by_role("link", name="Models as CSV").click()
        assert download.value.suggested_filename == "Models.csv"
        text = Path(download.value.path()).read_text("utf-8")
        heads, row = csv.reader(text.splitlines())
        assert heads[:4] == ["model", "version", "state", "since"]
        assert row[:3] == [f"'{name}", "1", "SERVING"]
