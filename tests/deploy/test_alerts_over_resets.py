"""Every alert without any data, and in worlds whose counters start over.

The shipped tests of each rule file say when its alerts fire and when not; both must hold
as well where every counter is reset just before each look.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import promql
import pytest
import yaml
from promtool_series import (
    COUNTERS,
    expanded,
    is_counter,
    read,
    started_over,
    with_resets,
)

DEPLOY = Path(__file__).parents[2] / "deploy" / "prometheus"
RULES = sorted((DEPLOY / "rules").glob("*.yaml"))
TESTS = sorted((DEPLOY / "tests").glob("*.yaml"))


@pytest.fixture
def promtool(require_commands, tmp_path):
    require_commands("promtool")

    def run(tests: dict) -> subprocess.CompletedProcess:
        (tmp_path / "tests.yaml").write_text(yaml.safe_dump(tests))
        return subprocess.run(
            ["promtool", "test", "rules", "tests.yaml"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


def alerts(rules: Path) -> dict[str, str]:
    groups = yaml.safe_load(rules.read_text())["groups"]
    return {r["alert"]: r["expr"] for g in groups for r in g["rules"] if "alert" in r}


def rule_file(tests: Path) -> Path:
    (name,) = read(tests)["rule_files"]
    return (tests.parent / name).resolve()


@pytest.mark.parametrize("rules", RULES, ids=lambda file: file.stem)
def test_no_alert_fires_where_there_are_no_data(rules, promtool) -> None:
    silent = [
        {"alertname": name, "eval_time": at, "exp_alerts": []}
        for name in alerts(rules)
        for at in ("1m", "2h", "26h")
    ]
    done = promtool(
        {
            "rule_files": [str(rules)],
            "evaluation_interval": "1m",
            "tests": [
                {"interval": "1m", "input_series": [], "alert_rule_test": silent}
            ],
        }
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("file", TESTS, ids=lambda file: file.stem)
def test_alerts_fire_and_stay_quiet_alike_where_counters_start_over(
    file, promtool
) -> None:
    tests = read(file)
    tests["rule_files"] = [str(rule_file(file))]
    tests["tests"] = [with_resets(test) for test in tests["tests"]]
    done = promtool(tests)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_that_rests_on_a_counter_is_among_them() -> None:
    recorded = {
        rule["record"]: rule["expr"]
        for file in RULES
        for group in yaml.safe_load(file.read_text())["groups"]
        for rule in group["rules"]
        if "record" in rule
    }

    def counters(expression: str) -> set[str]:
        found = set()
        for selector in promql.selectors(expression):
            name = selector.metric
            found |= counters(recorded[name]) if name in recorded else {name}
        return found & COUNTERS

    for file in TESTS:
        given = {
            series["series"].split("{")[0]
            for test in read(file)["tests"]
            for series in test["input_series"]
            if is_counter(series["series"])
            and any(
                after != before
                for before, after in zip(
                    expanded(series["values"]),
                    expanded(reset_of(test, series["series"])),
                    strict=True,
                )
            )
        }
        for name, expression in alerts(rule_file(file)).items():
            assert not counters(expression) or counters(expression) & given, name


def reset_of(test: dict, series: str) -> str:
    changed = with_resets(test)["input_series"]
    return next(s["values"] for s in changed if s["series"] == series)


def test_a_counter_that_starts_over_rises_as_before() -> None:
    before = expanded("0+5x3 20 _ 25x1")
    assert before == [0, 5, 10, 15, 20, None, 25, 25]
    assert started_over(before, [1, 4]) == [0, 5, 5, 10, 15, None, 5, 5]
