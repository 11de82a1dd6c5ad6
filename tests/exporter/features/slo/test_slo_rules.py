"""The generated rules, run by promtool: each alert fires, stays quiet, survives resets."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from requirements import require

from exporter.config.configuration import parse
from exporter.features.slo.objectives import expanded
from exporter.features.slo.slo_rules import SEVERITIES, Links, rules_file

# promtool evaluates days of rules.

RUNBOOKS = Path(__file__).parents[4] / "deploy" / "runbooks"
SLOS = b"""
slos:
  - {kind: availability, name: avail, objective_ratio: 0.99}
  - {kind: availability, name: lax, objective_ratio: 0.5}
  - {kind: availability, name: part, objective_ratio: 0.9999999, window_days: 7.5}
  - {kind: availability, name: odd, objective_ratio: 0.9, window_days: 1.0001}
  - {kind: availability, name: day, objective_ratio: 0.9, window_days: 1}
"""
ALERTS = [severity.alert for severity in SEVERITIES]


@pytest.fixture
def promtool(tmp_path):
    require("promtool")
    rules = rules_file(expanded(parse(SLOS, "slos.yaml", {}).slos))
    (tmp_path / "rules.yml").write_text(rules)

    def run(*arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            ["promtool", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )

    return run


def series(good: str, bad: str, instance: str = "a", slo: str = "avail") -> list[dict]:
    return [
        {
            "series": f'triton_slo_events_total{{slo="{slo}",outcome="{outcome}",'
            f'instance="{instance}"}}',
            "values": values,
        }
        for outcome, values in (("good", good), ("bad", bad))
    ]


def check(
    promtool, tmp_path, given: list[dict], at: str, expected: set[str], every="1m"
) -> None:
    """At `at`, of the alerts on `avail` exactly `expected` fire; rules run `every` so often."""
    queries = [
        {
            "expr": f'count by (alertname) (ALERTS{{alertname="{alert}",slo="avail",'
            'alertstate="firing"}) or vector(0)',
            "eval_time": at,
            "exp_samples": [
                {"labels": f'{{alertname="{alert}"}}', "value": 1},
                {"labels": "{}", "value": 0},
            ]
            if alert in expected
            else [{"labels": "{}", "value": 0}],
        }
        for alert in ALERTS
    ]
    check_queries(promtool, tmp_path, given, queries, every)


def check_queries(
    promtool, tmp_path, given: list[dict], queries: list[dict], every="1m"
) -> None:
    tests = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": every,
        "tests": [
            {"interval": "1m", "input_series": given, "promql_expr_test": queries}
        ],
    }
    (tmp_path / "test.yml").write_text(yaml.safe_dump(tests))
    result = promtool("test", "rules", "test.yml")
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_window_of_any_length_is_a_duration_of_prometheus() -> None:
    rules = yaml.safe_load(rules_file(expanded(parse(SLOS, "slos.yaml", {}).slos)))
    records = {
        (rule["labels"]["slo"], rule["record"]): rule["expr"]
        for group in rules["groups"]
        for rule in group["rules"]
        if "record" in rule and "slo" in rule.get("labels", ())
    }
    for slo, window in (("part", "180h"), ("odd", "1440m"), ("day", "1d")):
        record = f"slo:sli_error:ratio_rate{window}"
        assert f"[{window}]" in records[slo, record]
        assert record in records[slo, "slo:error_budget_remaining:ratio"]
    assert records["part", "slo:objective:ratio"] == "vector(0.9999999)"


def test_a_slow_burn_asks_for_a_ticket_only(promtool, tmp_path) -> None:
    given = series("0+96x4000", "0+4x4000")
    check(promtool, tmp_path, given, "60h", {"TritonSLOBurnTicket"}, every="5m")


def test_no_events_and_no_series_are_silent(promtool, tmp_path) -> None:
    check(promtool, tmp_path, series("0x200", "0x200"), "2h", set())
    check(promtool, tmp_path, [], "2h", set())


def test_a_burn_that_ended_stops_the_page_when_the_short_window_is_clean(
    promtool, tmp_path
) -> None:
    given = series("0+80x60 4800+100x60", "0+20x60 1200+0x60")
    check(promtool, tmp_path, given, "62m", set(ALERTS))
    # An hour's window still holds the burn; five and thirty minutes do not.
    check(promtool, tmp_path, given, "110m", {"TritonSLOBurnTicket"})


@pytest.mark.parametrize(
    ("bad", "at", "every", "firing"),
    [
        ("0x60 1x59", "62m", "1m", set()),
        ("0x20 1x40 2x59", "62m", "1m", set(ALERTS)),
        # Long after the second sample of all, a rise is extrapolated to nearly twice.
        ("_x60 0 1x59", "3717s", "63s", set()),
    ],
)
def test_one_failure_of_an_hour_is_no_burn_and_two_are(
    promtool, tmp_path, bad, at, every, firing
) -> None:
    check(promtool, tmp_path, series("1x119", bad), at, firing, every)


def test_a_counter_reset_is_no_burn(promtool, tmp_path) -> None:
    given = series("0+1000x60 0+1000x60", "50+1x60 0+1x60")
    check(promtool, tmp_path, given, "90m", set())


def test_a_counter_reset_hides_no_burn(promtool, tmp_path) -> None:
    given = series("0+80x60 0+80x60", "0+20x60 0+20x60")
    check(promtool, tmp_path, given, "62m", set(ALERTS))
    check(promtool, tmp_path, given, "2h", set(ALERTS))


def test_replicas_are_summed_before_they_are_divided(promtool, tmp_path) -> None:
    # One replica fails all of its few requests, the other none of its many: together
    # 0.5 %. An average of the two ratios would be 50 %.
    given = [
        *series("0x120", "0+5x120", "small"),
        *series("0+995x120", "0x120", "large"),
    ]
    check(promtool, tmp_path, given, "2h", set())


def test_a_load_test_of_staging_hides_no_burn_of_production(promtool, tmp_path) -> None:
    given = [
        {**entry, "series": entry["series"].replace("{", f'{{job="{job}",')}
        for job, counts in (
            ("staging", ("0+9000x120", "0x120")),
            ("production", ("0+80x120", "0+20x120")),
        )
        for entry in series(*counts)
    ]
    check(promtool, tmp_path, given, "62m", set(ALERTS))


def test_an_objective_too_lax_to_burn_fast_has_no_alert_that_cannot_fire() -> None:
    text = rules_file(expanded(parse(SLOS, "slos.yaml", {}).slos))
    (lax,) = [
        group
        for group in yaml.safe_load(text)["groups"]
        if group["name"] == "tritonwatch-slo-lax"
    ]
    (alert,) = [rule for rule in lax["rules"] if "alert" in rule]
    assert alert["alert"] == "TritonSLOBurnTicket"
    # Three times the budget would be more than all events.
    expression = (
        '(slo:sli_error:ratio_rate3d{slo="lax"} > 1 * 0.5\n'
        '  and slo:sli_error:ratio_rate6h{slo="lax"} > 1 * 0.5\n'
        "  and sum by (cluster, namespace, job, slo) (increase("
        'triton_slo_events_total{slo="lax",outcome="bad"}[3d])) >= 2)'
    )
    assert alert["expr"] == expression
    assert "its objective allows 50.0000%." in alert["annotations"]["description"]
    assert f"expr: |-\n{expression}".replace("\n", "\n      ") in text


def test_an_alert_sees_what_the_same_evaluation_recorded() -> None:
    rules = yaml.safe_load(rules_file(expanded(parse(SLOS, "slos.yaml", {}).slos)))
    for group in rules["groups"]:
        recorded = [n for n, rule in enumerate(group["rules"]) if "record" in rule]
        alerting = [n for n, rule in enumerate(group["rules"]) if "alert" in rule]
        assert recorded
        assert not alerting or max(recorded) < min(alerting)


def test_the_autoscaler_is_not_misled_by_idle_models(promtool, tmp_path) -> None:
    """Scraped once a minute, as Prometheus does unless it is told otherwise."""

    def of(name: str, model: str, values: str, more: str = "") -> dict[str, str]:
        labels = f'model="{model}",version="1",instance="a"{more}'
        return {"series": f"triton_{name}_total{{{labels}}}", "values": values}

    succeeded = ',outcome="success"'
    given = [
        of("model_queue_seconds", "busy", "0+6x20"),
        of("requests", "busy", "0+600x20", succeeded),
        of("model_queue_seconds", "idle", "0x20"),
        of("requests", "idle", "0x20", succeeded),
    ]
    check_queries(
        promtool,
        tmp_path,
        given,
        [
            {
                "expr": "round(instance:triton_queue_seconds_per_request:rate5m * 1e6)",
                "eval_time": "10m",
                "exp_samples": [{"labels": '{instance="a"}', "value": 10_000}],
            },
            {
                "expr": "count(model:triton_queue_seconds_per_request:rate5m)",
                "eval_time": "10m",
                "exp_samples": [{"labels": "{}", "value": 1}],
            },
        ],
    )


def test_quantiles_of_a_fleet_are_those_of_all_its_requests(promtool, tmp_path) -> None:
    bounds = ("1", "2", "4", "+Inf")
    rises = {"m,a": (50, 50, 50, 50), "m,b": (0, 45, 49, 50), "idle,a": (0, 0, 0, 0)}
    given = [
        {
            "series": "triton_request_duration_seconds_bucket"
            f'{{model="{model}",version="1",instance="{instance}",le="{bound}"}}',
            "values": f"0+{rise}x20",
        }
        for model, _, instance in (name.partition(",") for name in rises)
        for bound, rise in zip(bounds, rises[f"{model},{instance}"], strict=True)
    ]
    metric = "model_version:triton_request_duration_seconds"
    queries = [
        {
            "expr": f"round({metric}:{label}_rate5m * 1e6)",
            "eval_time": "10m",
            "exp_samples": [{"labels": '{model="m",version="1"}', "value": value}],
        }
        for label, value in (("p50", 1e6), ("p95", 2e6), ("p99", 4e6))
    ]
    check_queries(promtool, tmp_path, given, queries)


def test_links_are_whole_where_their_addresses_are_given():
    links = Links("https://runbooks.example/triton/", "https://grafana.example")
    objectives = expanded(parse(SLOS, "slos.yaml", {}).slos)
    groups = yaml.safe_load(rules_file(objectives, links))["groups"]
    notes = [r["annotations"] for g in groups for r in g["rules"] if "alert" in r]
    assert notes
    for note in notes:
        assert note["dashboard_url"] == (
            "https://grafana.example/d/tritonwatch-slo?var-job={{ $labels.job | urlquery }}"
        )
        folder, _, page = note["runbook_url"].rpartition("/")
        assert folder == "https://runbooks.example/triton"
        text = (RUNBOOKS / page).read_text("utf-8")
        for part in ("## Meaning", "## Impact", "## Diagnosis", "## Mitigation"):
            assert part in text
    shares = [
        share for share in ("1.0000%", "50.0000%") for n in notes if share in str(n)
    ]
    assert sorted(set(shares)) == ["1.0000%", "50.0000%"], "bad events allowed"


def test_the_runbook_of_an_objective_of_one_model_leads_to_that_model():
    slos = b"""
slos:
  - {kind: availability, name: one, objective_ratio: 0.99, models: resnet+50}
  - {kind: availability, name: some, objective_ratio: 0.99, models: "resnet*"}
  - {kind: availability, name: all, objective_ratio: 0.99}
"""
    found = yaml.safe_load(rules_file(expanded(parse(slos, "slos.yaml", {}).slos)))
    pages = {
        rule["labels"]["slo"]: rule["annotations"]["runbook_url"]
        for group in found["groups"]
        for rule in group["rules"]
        if rule.get("alert") == "TritonSLOBurnPage"
    }
    page = "deploy/runbooks/TritonSLOBurnPage.md"
    assert pages == {"one": f"{page}?model=resnet%2B50", "some": page, "all": page}


def test_links_of_the_shipped_rules_become_whole_as_documented(tmp_path):
    docs = (RUNBOOKS.parents[1] / "docs" / "commands.md").read_text("utf-8")
    (command,) = re.findall(r"^sed -i .*(?= deploy/prometheus)", docs, re.MULTILINE)
    for file in (RUNBOOKS.parent / "prometheus" / "rules").glob("*.yaml"):
        copy = tmp_path / file.name
        shutil.copy(file, copy)
        subprocess.run([*shlex.split(command), copy], check=True)
        for group in yaml.safe_load(copy.read_text("utf-8"))["groups"]:
            for note in (r["annotations"] for r in group["rules"] if "alert" in r):
                assert note["runbook_url"].startswith("https://runbooks.example/Triton")
                assert note["dashboard_url"].startswith("https://grafana.example/d/")
