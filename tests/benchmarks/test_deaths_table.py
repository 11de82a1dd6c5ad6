"""The table of deaths in docs/production-latency.md, beside the results that it is of."""

from __future__ import annotations

import json
import sys
from pathlib import Path

HERE = Path(__file__).parent
ONE = "trace_deaths_otel_closed_rate_1"
sys.path.insert(0, str(HERE))

import deaths_table
import passages


def results():
    found = sorted((HERE / "results").glob("*-traces-deaths*.json"))
    return [json.loads(file.read_text("utf-8")) for file in found]


def test_the_page_shows_what_the_results_say():
    page = deaths_table.PAGE.read_text("utf-8")
    shown = passages.page_with(
        deaths_table.PASSAGE, deaths_table.table(results()), page
    )
    assert page == shown


def test_a_cell_measured_twice_is_one_line_with_the_interval_of_both():
    once = max(results(), key=lambda document: len(document["figures"]))
    (first,) = (cell for cell in once["figures"] if cell["name"] == ONE)
    _, _, line, *_ = deaths_table.table([once, once]).splitlines()
    traced, crashed = (word.strip() for word in line.split("|")[4:6])
    assert traced == f"{2 * first['n']:,}"
    assert crashed == str(2 * first["crashes"])


def test_servers_that_did_not_trace_did_not_die():
    cells = [cell for document in results() for cell in document["figures"]]
    (control,) = (cell for cell in cells if "_off_" in cell["name"])
    assert control["crashes"] + control["hangs"] == 0
    assert control["requests"] > 100_000
