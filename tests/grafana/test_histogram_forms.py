"""Every query shows data, whichever form of a histogram Prometheus keeps.

The forms are classic, native and both. All metrics are scripted, so queries of what the demo
does not have (a GPU, a load run, a capacity) are held to it as well.
"""

from __future__ import annotations

import contextlib
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import promql
import pytest
import yaml
from catalogue_server import FORMS, LATENCIES, CatalogueServer, empty, watched
from requirements import require
from waiting import patience

from exporter.features.slo.objectives import AvailabilityObjective
from exporter.features.slo.slo_rules import rules_file
from grafana import build

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from monitoring import Prometheus

DEPLOY = Path(__file__).parents[2] / "deploy"
GENERATED = rules_file([AvailabilityObjective(name="answers", objective_ratio=0.99)])
RULES = {
    **{p.name: p.read_text("utf-8") for p in (DEPLOY / "prometheus/rules").glob("*")},
    "generated.yaml": GENERATED,
}


def panel_queries() -> Iterator[str]:
    for document in build.documents().values():
        for mark in document["annotations"]["list"]:
            yield promql.filled_in(mark["expr"])
        for panel in document["panels"]:
            for target in panel.get("targets", ()):
                yield promql.filled_in(target["expr"])


def rule_queries() -> Iterator[str]:
    for text in RULES.values():
        for group in yaml.safe_load(text)["groups"]:
            for rule in group["rules"]:
                yield rule["expr"]


def runbook_queries() -> Iterator[str]:
    """What a runbook asks a person to enter."""
    for page in (DEPLOY / "runbooks").glob("*.md"):
        for code in re.findall(r"`([^`\n]*\btriton[^`\n]*)`", page.read_text("utf-8")):
            if re.search(r"_(bucket|sum|count)\b|histogram_", code):
                yield code.replace("MODEL", "x")


QUERIES = sorted({*panel_queries(), *rule_queries(), *runbook_queries()})
OF_HISTOGRAMS = [
    query
    for query in QUERIES
    for selector in promql.selectors(query)
    if re.sub("_(bucket|sum|count)$", "", selector.metric) in LATENCIES
]


@pytest.fixture(scope="module")
def forms(tmp_path_factory) -> Generator[dict[str, Prometheus]]:
    """A Prometheus for each form; the classic one watches two servers, the others one."""
    require("prometheus")
    folder = tmp_path_factory.mktemp("forms")
    with contextlib.ExitStack() as ends:
        first, second = (ends.enter_context(CatalogueServer(QUERIES)) for _ in range(2))
        servers = {"classic": [first, second]}
        running = {
            form: ends.enter_context(
                watched(folder, servers.get(form, [first]), form, rules=RULES)
            )
            for form in FORMS
        }
        for form, prometheus in running.items():
            prometheus.wait("changes(triton_requests_total[1m]) >= 4", 120)
            if form != "native":
                prometheus.wait("triton_request_duration_seconds_bucket", 120)
        yield running


@pytest.mark.parametrize("form", FORMS)
def test_every_panel_shows_data_and_no_query_only_in_another_form(forms, form) -> None:
    deadline = time.monotonic() + patience(120)
    while True:
        shown = {q for f in FORMS for q in QUERIES if q not in empty(forms[f], [q])}
        blank = empty(forms[form], sorted({*shown, *panel_queries()}))
        if not blank or time.monotonic() > deadline:
            break
        time.sleep(1)
    assert blank == set()
    assert len(shown) > len(QUERIES) / 2


def test_every_rule_can_be_evaluated_over_two_servers(forms) -> None:
    rules = [
        rule for g in forms["classic"].get("rules")["groups"] for rule in g["rules"]
    ]
    assert {
        rule["name"]: rule.get("lastError") for rule in rules if rule["health"] != "ok"
    } == {}
    assert len(rules) == len([*rule_queries()])


def test_a_heat_map_never_draws_both_forms_at_once(forms) -> None:
    (query,) = {q for q in OF_HISTOGRAMS if "or on ()" in q}
    found = {form: forms[form].query(query) for form in FORMS}
    assert {"le" in series["metric"] for series in found["classic"]} == {True}
    for form in ("native", "both"):
        (series,) = found[form]
        assert series["histogram"][1]["buckets"]


TAIL = next(
    rule
    for group in yaml.safe_load(RULES["tritonwatch.yaml"])["groups"]
    for rule in group["rules"]
    if rule.get("alert") == "TritonTailLatency"
)
# The rule's own times, so much shorter that a test can wait for them.
SHORTER = {"10m": "20s", "1d": "60s", "1h": "30s"}


@pytest.mark.parametrize("form", FORMS)
def test_tail_latency_fires_in_every_form_and_only_when_it_is_slow(
    form, tmp_path
) -> None:
    require("prometheus")
    expression = re.sub(
        r"\b(10m|1d|1h)\b", lambda found: SHORTER[found[1]], TAIL["expr"]
    )
    with (
        CatalogueServer([expression]) as server,
        watched(tmp_path, [server], form) as prometheus,
    ):
        # The day before has passed and is steady.
        prometheus.wait("count_over_time(up[2m] offset 35s) > 15", 200)
        assert prometheus.query(expression) == []
        server.latency_seconds = 1.0
        (slow,) = prometheus.wait(expression, 120)
        assert 0.5 <= float(slow["value"][1]) <= 2
