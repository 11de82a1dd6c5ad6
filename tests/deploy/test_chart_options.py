"""The chart's options for a cluster: accounts, secrets, volumes, monitors, rules, dashboards."""

from __future__ import annotations

import json
import subprocess

import helm_python
import pytest
import yaml
from helm_charts import CHART, DEPLOY, rendered
from requirements import require

RULES = sorted((DEPLOY / "prometheus" / "rules").glob("*.yaml"))
DASHBOARDS = sorted((DEPLOY.parent / "grafana" / "dashboards").glob("*.json"))


def of_kind(values: dict, kind: str) -> list[dict]:
    return [d for d in rendered(values) if d["kind"] == kind]


def pod(values: dict) -> dict:
    [deployment] = of_kind(values, "Deployment")
    return deployment["spec"]["template"]["spec"]


def test_nothing_of_it_is_there_unless_asked_for() -> None:
    for kind in ("ServiceAccount", "ServiceMonitor", "PodMonitor", "PrometheusRule"):
        assert of_kind({}, kind) == []
    assert len(of_kind({}, "ConfigMap")) == 1
    assert pod({}).keys().isdisjoint({"serviceAccountName", "imagePullSecrets"})


def test_a_service_account_is_created_and_still_mounts_no_token() -> None:
    account = {"create": True, "annotations": {"example.org/role": "watch"}}
    [created] = of_kind({"serviceAccount": account}, "ServiceAccount")
    assert created["metadata"]["name"] == "prod-tritonwatch"
    assert created["metadata"]["annotations"] == {"example.org/role": "watch"}
    assert created["automountServiceAccountToken"] is False
    found = pod({"serviceAccount": account})
    assert found["serviceAccountName"] == "prod-tritonwatch"
    assert found["automountServiceAccountToken"] is False


def test_an_account_of_another_chart_is_used_and_not_created() -> None:
    values = {"serviceAccount": {"name": "mine"}}
    assert of_kind(values, "ServiceAccount") == []
    assert pod(values)["serviceAccountName"] == "mine"
    [created] = of_kind(
        {"serviceAccount": {"create": True, "name": "mine"}}, "ServiceAccount"
    )
    assert created["metadata"]["name"] == "mine"


def test_secrets_variables_and_volumes_reach_the_container() -> None:
    secret = {"secretKeyRef": {"name": "triton", "key": "token"}}
    found = pod(
        {
            "imagePullSecrets": [{"name": "registry"}],
            "extraEnv": [{"name": "TOKEN", "valueFrom": secret}],
            "extraVolumes": [{"name": "golden", "emptyDir": {}}],
            "extraVolumeMounts": [{"name": "golden", "mountPath": "/data/golden"}],
        }
    )
    assert found["imagePullSecrets"] == [{"name": "registry"}]
    [container] = found["containers"]
    assert container["env"] == [{"name": "TOKEN", "valueFrom": secret}]
    volumes = [volume["name"] for volume in found["volumes"]]
    assert volumes == ["tritonwatch", "tritonwatch-state", "golden"]
    mounts = {m["name"]: m["mountPath"] for m in container["volumeMounts"]}
    assert mounts["golden"] == "/data/golden"
    assert len(set(mounts.values())) == len(volumes)
    assert container["securityContext"]["readOnlyRootFilesystem"] is True


@pytest.mark.parametrize("mode", ["standalone", "sidecar"])
def test_monitors_select_what_the_chart_makes(mode) -> None:
    monitor = {"enabled": True, "interval": "5s", "labels": {"release": "kps"}}
    values = {
        "mode": mode,
        "scrape": {"serviceMonitor": monitor, "podMonitor": monitor},
    }
    [of_service] = of_kind(values, "ServiceMonitor")
    [service] = of_kind(values, "Service")
    wanted = of_service["spec"]["selector"]["matchLabels"]
    assert wanted.items() <= service["metadata"]["labels"].items()
    [endpoint] = of_service["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert (endpoint["path"], endpoint["interval"]) == ("/metrics", "5s")
    [of_pods] = of_kind(values, "PodMonitor")
    for document in (of_service, of_pods):
        assert document["metadata"]["labels"]["release"] == "kps"


def test_the_shipped_rules_are_prometheus_rules(tmp_path) -> None:
    require("promtool")
    values = {
        "prometheusRule": {
            "enabled": True,
            "labels": {"release": "kps"},
            "runbooksUrl": "https://runbooks.example/",
            "grafanaUrl": "https://grafana.example",
        }
    }
    found = of_kind(values, "PrometheusRule")
    shipped = [yaml.safe_load(path.read_text("utf-8"))["groups"] for path in RULES]
    assert len(found) == len(shipped)
    for document, groups in zip(found, shipped, strict=True):
        assert document["metadata"]["labels"]["release"] == "kps"
        alerts = [
            rule for group in document["spec"]["groups"] for rule in group["rules"]
        ]
        expected = [rule for group in groups for rule in group["rules"]]
        assert [a.get("expr") for a in alerts] == [e.get("expr") for e in expected]
        for alert, rule in zip(alerts, expected, strict=True):
            if "annotations" in rule:
                links = alert["annotations"]
                assert links["runbook_url"] == rule["annotations"][
                    "runbook_url"
                ].replace("deploy/runbooks", "https://runbooks.example")
                assert links["dashboard_url"].startswith("https://grafana.example/d/")
                assert links["summary"] == rule["annotations"]["summary"]
        file = tmp_path / f"{document['metadata']['name']}.yaml"
        file.write_text(yaml.safe_dump(document["spec"]))
        checked = subprocess.run(
            ["promtool", "check", "rules", file],
            capture_output=True,
            text=True,
            check=False,
        )
        assert checked.returncode == 0, checked.stdout + checked.stderr


def test_rules_without_addresses_are_as_shipped() -> None:
    found = of_kind({"prometheusRule": {"enabled": True}}, "PrometheusRule")
    specs = [document["spec"] for document in found]
    assert specs == [yaml.safe_load(path.read_text("utf-8")) for path in RULES]


def test_dashboards_are_config_maps_that_grafanas_sidecar_finds() -> None:
    values = {"dashboards": {"enabled": True, "annotations": {"folder": "Triton"}}}
    maps = of_kind(values, "ConfigMap")
    boards = [m for m in maps if m["metadata"]["labels"].get("grafana_dashboard")]
    assert len(boards) == len(DASHBOARDS) == len(maps) - 1
    contents = {name: text for m in boards for name, text in m["data"].items()}
    assert {name: json.loads(text) for name, text in contents.items()} == {
        path.name: json.loads(path.read_text("utf-8")) for path in DASHBOARDS
    }
    for board in boards:
        assert board["metadata"]["annotations"] == {"folder": "Triton"}
        assert len(json.dumps(board)) < 1_000_000, "Kubernetes takes a mebibyte"
    other = {"dashboards": {"enabled": True, "labels": {"board": "yes"}}}
    [first, *_] = [
        m for m in of_kind(other, "ConfigMap") if m["metadata"]["labels"].get("board")
    ]
    assert first["metadata"]["labels"]["board"] == "yes"


@pytest.mark.parametrize(
    "values",
    [
        {"serviceAccount": {"creat": True}},
        {"extraEnv": {"TOKEN": "x"}},
        {"scrape": {"serviceMonitor": {"interval": "soon"}}},
        {"prometheusRule": {"runbooksUrl": 5}},
        {"dashboards": {"enabled": "yes"}},
        {"imagePullSecrets": ["registry"]},
    ],
)
def test_misspelt_options_are_refused(values) -> None:
    with (
        helm_python.Chart.load(str(CHART)) as chart,
        pytest.raises(helm_python.HelmError),
    ):
        chart.validate_schema(values)


def test_every_value_is_documented_where_it_stands() -> None:
    text = (CHART / "values.yaml").read_text("utf-8")
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    values = yaml.safe_load(text)
    assert values.keys() == schema["properties"].keys() - {"global"}
    for name in ("serviceAccount", "extraEnv", "prometheusRule", "dashboards"):
        before = text.partition(f"\n{name}:")[0].rsplit("\n", 1)[1]
        assert before.startswith("# "), name
