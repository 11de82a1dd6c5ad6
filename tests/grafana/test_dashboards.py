"""The dashboards: fresh, as Grafana's linter wants them, and asking for what exists."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import get_args

import promql
import pytest

from exporter import catalogue
from exporter.config.configuration import Config
from exporter.features.runs.run_board import RunNotice
from exporter.samples import MetricSpec
from grafana import build

FOLDER = Path(build.__file__).with_name("dashboards")
BOARDS = {path.stem: json.loads(path.read_text()) for path in FOLDER.glob("*.json")}
PANELS = [
    pytest.param(panel, id=f"{name}/{panel['title']}")
    for name, board in sorted(BOARDS.items())
    for panel in board["panels"]
    if panel["type"] != "row"
]
QUERIES = [
    pytest.param(target["expr"], id=f"{parameter.id}/{target['refId']}")
    for parameter in PANELS
    for target in parameter.values[0]["targets"]
]
ANNOTATIONS = [
    pytest.param(annotation, id=f"{name}/{annotation['name']}")
    for name, board in sorted(BOARDS.items())
    for annotation in board["annotations"]["list"]
]
# What Grafana 11 and 12 both have and neither calls deprecated (graph, singlestat,
# table-old and the like are gone or being migrated).
PANEL_TYPES = {"row", "stat", "timeseries", "heatmap", "table", "barchart"}
# https://grafana.com/docs/grafana/latest/visualizations/panels-visualizations/query-transform-data/
TRANSFORMATIONS = {"merge", "organize", "sortBy"}
RUNBOOKS = FOLDER.parents[1] / "deploy" / "runbooks"
KINDS = set(re.findall(r'"const": "(\w+)"', json.dumps(Config.model_json_schema())))
UNITS = {
    "none", "short", "s", "percentunit", "reqps", "cps", "bytes", "watt", "joule",
    "celsius", "hertz", "currencyUSD", "massg", "dateTimeAsIso",
}  # fmt: skip


def test_the_committed_files_are_what_the_code_says() -> None:
    assert build.main(["--check"]) == 0


def test_every_dashboard_has_its_own_uid_and_title() -> None:
    assert len({board["uid"] for board in BOARDS.values()}) == len(BOARDS)
    assert len({board["title"] for board in BOARDS.values()}) == len(BOARDS)
    assert all(board["uid"] == name for name, board in BOARDS.items())


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
class TestEveryDashboard:
    """The rules of grafana/dashboard-linter, and a few of our own."""

    def test_has_the_variables_that_choose_what_is_shown(self, board) -> None:
        variables = {v["name"]: v for v in board["templating"]["list"]}
        assert variables["datasource"]["type"] == "datasource"
        assert variables["datasource"]["label"] == "Data source"
        for name in ("job", "instance"):
            assert variables[name]["type"] == "query"
            assert variables[name]["label"] == name.capitalize()
            assert variables[name]["multi"] is True
        assert variables["job"]["includeAll"] is False, "staging beside production"
        assert variables["instance"]["allValue"] == ".+"
        for name, variable in variables.items():
            if variable["type"] == "query":
                assert variable["refresh"] == 2, f"{name} follows the time range"
                assert variable["datasource"]["uid"] == "${datasource}"

    def test_is_not_editable_and_links_to_the_others(self, board) -> None:
        assert board["editable"] is False
        assert board["links"][0]["tags"] == ["tritonwatch"]
        assert board["description"]
        assert "tritonwatch" in board["tags"]

    def test_is_a_document_that_grafana_11_and_12_import(self, board) -> None:
        # 39 is what Grafana 11.0 writes; an older one than a document's own keeps what
        # it does not know. The second schema (apiVersion, spec) it would refuse.
        assert board["schemaVersion"] >= 39
        assert not board.keys() & {"apiVersion", "kind", "spec", "rows", "__inputs"}
        # An id is the database's own: one that is given would overwrite another's.
        assert board.get("id") is None
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", board["uid"])
        assert re.fullmatch(r"now-\d+[hmd]", board["time"]["from"])
        assert re.fullmatch(r"\d+[sm]", board["refresh"])

    def test_its_panels_are_numbered_apart_and_of_known_types(self, board) -> None:
        numbers = [panel["id"] for panel in board["panels"]]
        assert len(set(numbers)) == len(numbers)
        assert all(number > 0 for number in numbers)
        for panel in board["panels"]:
            assert panel["type"] in PANEL_TYPES, panel["title"]
            for step in panel.get("transformations", ()):
                assert step["id"] in TRANSFORMATIONS, panel["title"]
                assert isinstance(step["options"], dict), panel["title"]

    def test_every_variable_it_uses_is_one_of_its_own(self, board) -> None:
        own = {variable["name"] for variable in board["templating"]["list"]}
        used = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(board)))
        assert used <= own
        assert len(own) == len(board["templating"]["list"])
        for panel in board["panels"]:
            assert panel.get("repeat") in {None, *own}, panel["title"]

    def test_marks_the_time_of_load_and_chaos_runs(self, board) -> None:
        marked = {}
        for annotation in board["annotations"]["list"]:
            assert annotation["enable"] is True
            assert annotation["datasource"]["uid"] == "${datasource}"
            [selector] = promql.selectors(promql.filled_in(annotation["expr"]))
            if selector.metric != "triton_run_info":
                continue
            kinds = re.search(r'kind=~"([a-z|]+)"', annotation["expr"])[1]
            marked |= dict.fromkeys(kinds.split("|"), annotation["iconColor"])
        assert marked.keys() == set(get_args(RunNotice.model_fields["kind"].annotation))
        assert marked["chaos"] != marked["load"]

    def test_marks_firing_alerts_reloads_and_loads_of_models(self, board) -> None:
        marks = {a["name"]: a for a in board["annotations"]["list"]}
        assert marks.keys() >= {"Firing alerts", "Sidecar reloads", "Model loads"}
        alerts = marks["Firing alerts"]["expr"]
        assert 'alertstate="firing"' in alerts
        # An alert over a fleet has no instance: choosing one must not hide it.
        assert 'instance=~"$instance|"' in alerts
        colors = [mark["iconColor"] for mark in marks.values()]
        assert len(set(colors)) == len(colors)

    def test_its_runbooks_are_there(self, board) -> None:
        for panel in board["panels"]:
            for link in panel.get("links", ()):
                page = link["url"].removeprefix("${runbooks}/")
                assert (RUNBOOKS / page).is_file(), panel["title"]
                assert link["type"] == "link"

    def test_its_panels_do_not_overlap(self, board) -> None:
        taken = set()
        for panel in board["panels"]:
            at = panel["gridPos"]
            cells = {
                (x, y)
                for x in range(at["x"], at["x"] + at["w"])
                for y in range(at["y"], at["y"] + at["h"])
            }
            assert not cells & taken, panel["title"]
            assert at["x"] + at["w"] <= 24, panel["title"]
            assert min(at["w"], at["h"]) > 0, panel["title"]
            taken |= cells

    def test_every_variable_query_asks_for_a_known_label(self, board) -> None:
        names = promql.series_names()
        for variable in board["templating"]["list"]:
            if variable["type"] != "query":
                continue
            found = re.fullmatch(
                r"label_values\(([a-z_]+)(\{.*\})?, ([a-z]+)\)", variable["query"]
            )
            assert found, variable["query"]
            assert found[3] in names[found[1]] | promql.FOREIGN_LABELS


@pytest.mark.parametrize("panel", PANELS)
class TestEveryPanel:
    def test_says_what_it_shows_and_in_which_unit(self, panel) -> None:
        assert panel["title"]
        assert len(panel["description"]) > 20
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS

    def test_asks_the_chosen_data_source(self, panel) -> None:
        assert panel["datasource"]["uid"] == "${datasource}"
        assert panel["targets"]
        for target in panel["targets"]:
            assert target["datasource"]["uid"] == "${datasource}"
            assert target["refId"]

    def test_its_legends_name_labels_the_query_keeps(self, panel) -> None:
        names = promql.series_names() | promql.FOREIGN_METRICS | promql.RECORDED
        for target in panel["targets"]:
            query = promql.filled_in(target["expr"])
            kept = promql.grouping_labels(query) or set.union(
                *(names[s.metric] for s in promql.selectors(query)),
                promql.FOREIGN_LABELS,
            )
            used = set(re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", "")))
            assert used <= kept, target["expr"]


OWN = 'triton_slo_error_budget_remaining_ratio{job="j", instance="i", slo="s"}'
WHOLE = 'slo:error_budget_remaining:ratio{job="j", slo="s"}'
BUDGETS = {
    (panel["title"], target["legendFormat"]): (panel, target["expr"])
    for panel in (parameter.values[0] for parameter in PANELS)
    for target in panel["targets"]
    if "error_budget_remaining" in target["expr"]
}


@pytest.mark.parametrize(
    ("values", "left", "spent"),
    [
        pytest.param({OWN: "-93.23"}, 0, 94.23, id="overspent"),
        pytest.param({OWN: "-93.23", WHOLE: "0.4"}, 0.4, 0.6, id="whole window"),
        pytest.param({OWN: "1", WHOLE: "-1"}, 0, 2, id="overspent before a restart"),
    ],
)
def test_the_budget_is_of_the_whole_window_where_prometheus_knows_it(
    values, left, spent, require_commands, tmp_path
) -> None:
    """A sidecar knows no more than what it has seen since it started."""
    require_commands("promtool")
    expected = {
        place: spent if place == ("Objectives", "times budget spent") else left
        for place in BUDGETS
    }
    assert len(expected) == 4
    asked = [
        {
            "expr": f"sum({promql.filled_in(BUDGETS[place][1])})",
            "exp_samples": [{"labels": "{}", "value": value}],
        }
        for place, value in expected.items()
    ]
    given = [{"series": name, "values": value} for name, value in values.items()]
    file = tmp_path / "test.yaml"
    file.write_text(
        json.dumps({"tests": [{"input_series": given, "promql_expr_test": asked}]})
    )
    run = ["promtool", "test", "rules", file]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_budget_that_is_spent_is_red() -> None:
    for panel, _ in BUDGETS.values():
        steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
        reached = [s["color"] for s in steps if s["value"] is None or s["value"] <= 0]
        assert reached[-1] == "red", panel["title"]


END = re.compile(r'bound="(low|lower|high|upper)"')
INTERVALS = [
    parameter
    for parameter in PANELS
    if parameter.values[0]["type"] == "timeseries"
    and any(END.search(target["expr"]) for target in parameter.values[0]["targets"])
]


@pytest.mark.parametrize("panel", INTERVALS)
def test_both_ends_of_an_interval_are_drawn(panel) -> None:
    ends = [target for target in panel["targets"] if END.search(target["expr"])]
    assert len(ends) == 2
    for target in ends:
        [override] = [
            o
            for o in panel["fieldConfig"]["overrides"]
            if re.search(o["matcher"]["options"].strip("/"), target["legendFormat"])
        ]
        style = {p["id"]: p["value"] for p in override["properties"]}
        assert style["custom.lineStyle"]["fill"] == "dash"
        assert not style["custom.hideFrom"]["viz"]
        assert style.get("custom.lineWidth", 1) > 0


# Metrics that are always there; all others depend on what is configured or sent.
ALWAYS = {
    spec.name
    for part in (catalogue.server_metrics, catalogue.probe_metrics)
    for spec in vars(part).values()
    if isinstance(spec, MetricSpec)
}


@pytest.mark.parametrize("panel", PANELS)
def test_an_empty_panel_says_how_to_fill_it(panel) -> None:
    if panel["type"] == "stat":
        return  # says "no traffic", "no SLO" in large letters
    queries = [promql.filled_in(target["expr"]) for target in panel["targets"]]
    metrics = {s.metric for query in queries for s in promql.selectors(query)}
    said = panel["fieldConfig"]["defaults"].get("noValue", "")
    if not metrics & ALWAYS:
        assert said, metrics
    kinds = re.findall(r"kind: (\w+)", said)
    assert set(kinds) <= KINDS
    sections = re.findall(r"`(\w+):`", said)
    assert set(sections) <= set(Config.model_fields)


@pytest.mark.parametrize("panel", PANELS)
def test_nothing_is_filled_down_to_a_pattern(panel) -> None:
    """Grafana looks for a series of exactly that name: with none, nothing is drawn."""
    for override in panel["fieldConfig"]["overrides"]:
        assert "custom.fillBelowTo" not in {p["id"] for p in override["properties"]}


@pytest.mark.parametrize("annotation", ANNOTATIONS)
def test_an_annotation_names_labels_its_query_keeps(annotation) -> None:
    query = promql.filled_in(annotation["expr"])
    [selector] = promql.selectors(query)
    names = promql.series_names() | promql.FOREIGN_METRICS
    assert selector.labels <= names[selector.metric] | promql.FOREIGN_LABELS
    kept = promql.grouping_labels(query)
    shown = annotation["titleFormat"] + annotation["textFormat"]
    assert set(re.findall(r"\{\{(\w+)\}\}", shown)) == kept
    assert set(annotation["tagKeys"].split(",")) <= kept


def test_runbooks_elsewhere_are_linked_to_there(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(build, "FOLDER", tmp_path)
    assert build.main(["--runbooks", "https://git.example/runbooks/"]) == 0
    for name in BOARDS:
        board = json.loads((tmp_path / f"{name}.json").read_text())
        [place] = [v for v in board["templating"]["list"] if v["name"] == "runbooks"]
        assert place["query"] == "https://git.example/runbooks"


@pytest.mark.parametrize("query", QUERIES)
class TestEveryQuery:
    def test_asks_for_series_and_labels_of_the_catalogue(self, query) -> None:
        names = promql.series_names() | promql.FOREIGN_METRICS | promql.RECORDED
        for selector in promql.selectors(promql.filled_in(query)):
            assert selector.metric in names, selector.metric
            allowed = names[selector.metric] | promql.FOREIGN_LABELS
            assert selector.labels <= allowed, selector

    def test_follows_the_chosen_job_and_instance(self, query) -> None:
        instances = 0
        for selector in promql.selectors(promql.filled_in(query)):
            assert {"job", "cluster", "namespace"} <= selector.labels
            assert ("instance" in selector.labels) is (
                selector.metric not in promql.RECORDED
            )
            instances += "instance" in selector.labels
        assert query.count('instance=~"$instance"') == instances

    def test_rates_follow_the_scrape_interval(self, query) -> None:
        for window in re.findall(r"\[([^\]]+)\]", query):
            assert window in {"$__rate_interval", "1h", "1d"}

    def test_counters_are_only_asked_for_their_rise(self, query) -> None:
        filled = promql.filled_in(query)
        for selector in promql.selectors(filled):
            if selector.metric.endswith(("_total", "_bucket", "_sum", "_count")):
                pattern = rf"(rate|increase|irate)\({selector.metric}\{{"
                assert re.search(pattern, filled), query
