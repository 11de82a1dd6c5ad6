"""The page of a streamed run: its charts of first responses and of the time a token."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from load_runs import blocks_of, charts_of
from openai_server import DONE, OpenAiServer, Scripted, Write, delta, usage

from exporter.cli import main
from loadtests import result_file
from loadtests.report import run_document
from loadtests.report.run_report import report_of
from loadtests.result import Outcome
from pages import page_html, units
from pages.blocks import Tiles

FIRST, GAP, TOKENS = 0.05, 0.02, 6
FIRST_CHART = "Time to the first response"
GAP_CHART = "Time for each token or response after the first"


def answer(*_):
    return Scripted(
        [
            Write(delta(role="assistant", content="")),
            Write(delta(content="a"), FIRST),
            *[Write(delta(content="b"), GAP)] * (TOKENS - 1),
            Write(usage(3, TOKENS) + DONE),
        ]
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The result of a streamed run, and the page that the command makes of it."""
    folder = tmp_path_factory.mktemp("streamed")
    result, page = folder / "run.json", folder / "page.html"
    with OpenAiServer(answer) as server:
        command = (
            f"load run --quiet --protocol openai-chat --address {server.address} --model "
            f"chatty --profile constant --rate 10 --duration 4 --timeout 30 --json {result}"
        )
        assert main(command.split()) in (0, 1, 3)
    assert main(["load", "report", str(result), "--html", str(page)]) == 0
    return result_file.read(result), page.read_text("utf-8")


def at(values, q):
    """The least value with that share of all at or below it."""
    return np.sort(values)[max(math.ceil(q * len(values)) - 1, 0)]


@pytest.mark.parametrize(
    ("title", "least"), [(FIRST_CHART, FIRST), (GAP_CHART, GAP)], ids=["first", "gap"]
)
def test_a_chart_shows_the_quantiles_of_each_slice(run, title, least) -> None:
    result, page = run
    requests = result.requests
    assert requests.count(Outcome.OK) == len(requests) == 40, result.errors
    chart = charts_of(report_of(result))[title]
    seconds = (
        requests.first - requests.intended
        if title == FIRST_CHART
        else requests.mean_gap
    )
    starts = chart.series[0].x
    edges = [*starts.tolist(), result.duration_seconds]
    assert len(starts) > 1
    for series, q in zip(chart.series, (0.5, 0.99), strict=True):
        # Of a few requests in each slice p99 is the slowest.
        assert series.name == {0.5: "median", 0.99: "slowest"}[q]
        for (start, end), shown in zip(pairwise(edges), series.y, strict=True):
            inside = (requests.intended >= start) & (requests.intended < end)
            if not inside.any():
                assert math.isnan(shown)
                continue
            assert shown == pytest.approx(1e3 * at(seconds[inside], q))
            # The script's pauses; one after a late event may be shorter.
            assert shown >= 0.9e3 * least
    assert page_html.render(run_document.document(report_of(result)))
    assert page.count(title) >= 1


def test_the_tiles_are_those_of_all_requests(run) -> None:
    result, page = run
    requests = result.requests
    document = run_document.document(report_of(result))
    tiles = {}
    for block in blocks_of(document):
        if isinstance(block, Tiles):
            tiles |= block.values
    rate = TOKENS * len(requests) / result.sending_seconds
    shown = f"{units.number(rate)} ({units.number(TOKENS)} a request)"
    assert tiles["output tokens per second"] == shown
    for name in (
        "p99 first response",
        "median token or response gap",
        "output tokens per second",
    ):
        assert name in page
        assert tiles[name] in page


def test_a_run_without_streams_has_no_such_charts(run) -> None:
    result, _ = run
    unary = result.requests.where(result.requests.outcome == Outcome.OK)
    unary.first[:], unary.responses[:], unary.tokens[:] = np.nan, 0, 0
    bare = type(result).of(
        result.about,
        unary,
        duration_seconds=result.duration_seconds,
        sender_cpu_seconds=0.1,
    )
    charts = charts_of(report_of(bare))
    assert "Latency by percentile" in charts
    assert not {FIRST_CHART, GAP_CHART} & charts.keys()
