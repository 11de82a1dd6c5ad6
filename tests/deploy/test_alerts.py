"""Every alert: tested both ways by promtool, explained, and asking for what exists."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import promql
import pytest
import yaml

from exporter.features.slo.slo_rules import rules_file

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = sorted((DEPLOY / "prometheus" / "rules").glob("*.yaml"))
TESTS = sorted((DEPLOY / "prometheus" / "tests").glob("*.yaml"))
BOARDS = Path(__file__).parents[2] / "grafana" / "dashboards"
GROUPS = [g for file in RULES for g in yaml.safe_load(file.read_text())["groups"]]
ALERTS = [
    pytest.param(rule, id=rule["alert"])
    for group in GROUPS
    for rule in group["rules"]
    if "alert" in rule
]
RECORDED = {r["record"]: r["expr"] for g in GROUPS for r in g["rules"] if "record" in r}
EXPRESSIONS = [
    pytest.param(rule["expr"], id=rule.get("alert", rule.get("record")))
    for group in GROUPS
    for rule in group["rules"]
]
EVERY_EXPRESSION = [
    *EXPRESSIONS,
    *(
        pytest.param(rule["expr"], id=f"written/{rule['record']}")
        for group in yaml.safe_load(rules_file([]))["groups"]
        for rule in group["rules"]
    ),
]
SECTIONS = ("## Meaning", "## Impact", "## Diagnosis", "## Mitigation")


@pytest.mark.parametrize("file", RULES, ids=lambda file: file.name)
def test_promtool_takes_the_rules(file, require_commands) -> None:
    require_commands("promtool")
    run("promtool", "check", "rules", file.name, cwd=file.parent)


# Days of series: ten seconds of CPU, which a busy machine takes a minute for.
@pytest.mark.timeout(600)
@pytest.mark.parametrize("file", TESTS, ids=lambda file: file.name)
def test_every_alert_fires_and_stays_quiet_when_it_should(
    file, require_commands
) -> None:
    require_commands("promtool")
    run("promtool", "test", "rules", file.name, cwd=file.parent)


@pytest.mark.parametrize("rules", RULES, ids=lambda file: file.name)
def test_no_alert_fires_where_there_are_no_data(
    rules, require_commands, tmp_path
) -> None:
    require_commands("promtool")
    silent = [
        {"alertname": rule["alert"], "eval_time": at, "exp_alerts": []}
        for group in yaml.safe_load(rules.read_text())["groups"]
        for rule in group["rules"]
        if "alert" in rule
        for at in ("1m", "2h", "26h")
    ]
    test = {"interval": "1m", "input_series": [], "alert_rule_test": silent}
    file = {"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": [test]}
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(file))
    run("promtool", "test", "rules", "tests.yaml", cwd=tmp_path)


def run(*command: str, cwd: Path) -> str:
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def panels(uid: str) -> list[dict]:
    return json.loads((BOARDS / f"{uid}.json").read_text())["panels"]


def dashboard_of(alert: dict) -> str:
    """The dashboard of the alert's link, which opens with the job that the alert is about."""
    path, _, chosen = alert["annotations"]["dashboard_url"].partition("?")
    assert chosen == "var-job={{ $labels.job | urlquery }}"
    return path.removeprefix("/d/")


def asked_for(expression: str) -> set[str]:
    """The exposed metrics of a query, through recording rules."""
    found = set()
    for selector in promql.selectors(promql.filled_in(expression)):
        recorded = RECORDED.get(selector.metric)
        found |= asked_for(recorded) if recorded else {selector.metric}
    return found


@pytest.mark.parametrize("alert", ALERTS)
class TestEveryAlert:
    def test_says_what_where_and_how_much(self, alert) -> None:
        assert re.fullmatch(r"Triton(watch)?[A-Z]\w+", alert["alert"])
        assert alert["labels"]["severity"] in {"page", "ticket"}
        notes = alert["annotations"]
        assert notes["summary"]
        assert "{{ $" in notes["summary"] + notes["description"]
        assert len(notes["description"]) > len(notes["summary"])

    def test_its_runbook_is_there_and_whole(self, alert) -> None:
        page = (DEPLOY / "runbooks" / f"{alert['alert']}.md").read_text("utf-8")
        # A sidecar fills in the model, if the alert is about one.
        of_one = "$labels.model" in str(alert["annotations"]["summary"]) and (
            re.search(r"\bMODEL\b", page) is not None
        )
        assert alert["annotations"]["runbook_url"] == (
            f"deploy/runbooks/{alert['alert']}.md"
            + "?model={{ $labels.model }}" * of_one
        )
        assert page.startswith(f"# {alert['alert']}\n")
        found = [line for line in page.splitlines() if line in SECTIONS]
        assert found == list(SECTIONS)

    def test_its_dashboard_shows_what_it_is_about(self, alert) -> None:
        uid = dashboard_of(alert)
        queries = [t["expr"] for p in panels(uid) for t in p.get("targets", ())]
        shown = set().union(*map(asked_for, queries))
        assert shown & asked_for(alert["expr"])

    def test_its_dashboard_leads_to_its_runbook(self, alert) -> None:
        uid = dashboard_of(alert)
        links = [link["url"] for p in panels(uid) for link in p.get("links", ())]
        assert links.count(f"${{runbooks}}/{alert['alert']}.md") == 1

    def test_promtool_sees_it_fire_and_sees_it_quiet(self, alert) -> None:
        expectations = [
            query["exp_samples"]
            for file in TESTS
            for test in yaml.safe_load(file.read_text())["tests"]
            for query in test.get("promql_expr_test", ())
            if f'alertname="{alert["alert"]}"' in query["expr"]
        ] + [
            expected.get("exp_alerts") or []
            for file in TESTS
            for test in yaml.safe_load(file.read_text())["tests"]
            for expected in test.get("alert_rule_test", ())
            if expected["alertname"] == alert["alert"]
        ]
        quiet = [e for e in expectations if not e or e[0].get("value") == 0]
        assert quiet
        assert len(quiet) < len(expectations)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_rules_ask_for_series_and_labels_of_the_catalogue(expression) -> None:
    names = promql.series_names() | promql.FOREIGN_METRICS
    for selector in promql.selectors(expression):
        if selector.metric in RECORDED:
            continue
        assert selector.metric in names, selector.metric
        assert selector.labels <= names[selector.metric] | promql.FOREIGN_LABELS


@pytest.mark.parametrize("expression", EVERY_EXPRESSION)
def test_two_fleets_in_one_prometheus_are_never_mixed(expression) -> None:
    assert not re.search(r"\bsum ?\((?!rate)", expression), "a sum over everything"
    for labels in re.findall(r"\b(?:by|on) ?\(([^)]*)\)", expression):
        names = set(labels.replace(" ", "").split(","))
        assert names >= {"job", "instance"} or names >= {"cluster", "namespace", "job"}


@pytest.mark.parametrize("expression", EVERY_EXPRESSION)
def test_windows_hold_at_prometheus_scrape_interval_of_a_minute(expression) -> None:
    for number, unit in re.findall(r"\[(\d+)([smhd])[\]:]", expression):
        assert int(number) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[unit] >= 4 * 60


def test_no_runbook_is_of_an_alert_that_does_not_exist() -> None:
    ours = {parameter.values[0]["alert"] for parameter in ALERTS}
    ours |= {"TritonSLOBurnPage", "TritonSLOBurnTicket"}
    assert {page.stem for page in (DEPLOY / "runbooks").glob("*.md")} <= ours


def test_a_model_that_is_called_ready_and_dead_is_told_with_what_repairs_it() -> None:
    (lie,) = (p.values[0] for p in ALERTS if p.id == "TritonReadinessLie")
    said = lie["annotations"]["description"]
    assert re.search(r"unload.*load.*restart", said)
    assert "a load alone does not help" in said


def test_every_query_of_the_runbooks_parses_and_asks_for_what_exists() -> None:
    names = promql.series_names() | promql.FOREIGN_METRICS
    for page in (DEPLOY / "runbooks").glob("*.md"):
        for text in re.findall(r"`([^`]*\btriton(?:watch)?_[^`]*)`", page.read_text()):
            for selector in promql.selectors(text):
                assert selector.metric in names or selector.metric in RECORDED, (
                    f"{page.name}: {text}"
                )


def test_what_a_server_that_is_down_explains_is_ours_and_says_of_which_server() -> None:
    file = DEPLOY / "prometheus" / "alertmanager.yaml"
    [down] = [
        rule
        for rule in yaml.safe_load(file.read_text("utf-8"))["inhibit_rules"]
        if rule["source_matchers"] == ["alertname = TritonDown"]
    ]
    [matcher] = down["target_matchers"]
    found = re.fullmatch(r'alertname =~ "Triton\(([\w|]+)\)"', matcher)
    names = [f"Triton{name}" for name in found[1].split("|")]
    alerts = {parameter.id: parameter.values[0]["expr"] for parameter in ALERTS}
    for name in names:
        kept = promql.grouping_labels(alerts[name])
        # Alertmanager compares these with those of TritonDown.
        assert not kept or kept >= set(down["equal"]), name


def test_alertmanagers_configuration_is_taken_and_routes_by_severity(
    require_commands,
) -> None:
    require_commands("amtool")
    file = DEPLOY / "prometheus" / "alertmanager.yaml"
    run("amtool", "check-config", str(file), cwd=DEPLOY)
    for severity, receiver in (("page", "pages"), ("ticket", "tickets")):
        found = run(
            "amtool",
            "config",
            "routes",
            "test",
            f"--config.file={file}",
            f"severity={severity}",
            cwd=DEPLOY,
        )
        assert found.strip() == receiver
