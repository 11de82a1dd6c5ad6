"""What is deployed is valid for those who will read it: linters, schemas, our own check."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import helm_python
import promql
import pytest
import yaml
from helm_charts import (
    CHART,
    DEPLOY,
    assert_valid,
    documents,
    loaded_config,
    one,
    rendered,
    within_another,
)

from exporter.config import configuration
from exporter.features.slo.slo_rules import rules_file

ROOT = Path(__file__).parents[2]
VALUES = {
    "as it is": {},
    "everything": {
        "scrape": {
            "annotations": True,
            "podMonitor": {"enabled": True, "interval": "5s"},
            "serviceMonitor": {"enabled": True, "interval": "5s"},
        },
        "serviceAccount": {"create": True},
        "prometheusRule": {"enabled": True},
        "dashboards": {"enabled": True},
        "networkPolicy": {"enabled": True},
        "nodeSelector": {"pool": "gpu"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
    },
    "around a sidecar": {
        "mode": "sidecar",
        "networkPolicy": {"enabled": True},
        "podDisruptionBudget": {"enabled": True, "maxUnavailable": 1},
    },
}


def bin_of(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def run(*command: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=60, check=False
    )


def containers(pod: dict) -> list[dict]:
    return [*pod.get("initContainers", ()), *pod["containers"]]


def assert_hardened_pod(pod: dict) -> None:
    assert pod["automountServiceAccountToken"] is False
    for container in containers(pod):
        if container["name"] == "tritonwatch":
            assert_hardened(container)


def assert_hardened(container: dict) -> None:
    security = container["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["readOnlyRootFilesystem"] is True
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["resources"]["limits"]["memory"]
    # What needs Triton would keep the pod from ever starting.
    assert container["startupProbe"]["httpGet"]["path"] == "/-/healthy"


def test_the_dockerfile_pleases_hadolint() -> None:
    done = run(bin_of("hadolint"), str(DEPLOY / "docker" / "Dockerfile"))
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_runs_as_nobody_and_its_health_check_needs_no_shell() -> None:
    text = (DEPLOY / "docker" / "Dockerfile").read_text()
    assert re.findall(r"^USER (.+)$", text, re.MULTILINE) == ["65532:65532"]
    command = ast.literal_eval(
        re.search(r"HEALTHCHECK.*?CMD (\[.*?\])\n", text, re.DOTALL)[1]
    )
    assert command[:2] == ["python", "-c"]
    compile(command[2], "health check", "exec")


def test_the_image_installs_what_the_project_asks_for_and_no_more() -> None:
    lock = (DEPLOY / "docker" / "requirements.lock").read_text()
    whole = (ROOT / "requirements.lock").read_text()
    pins = set(re.findall(r"^([a-z0-9._-]+==\S+)", lock, re.MULTILINE))
    assert pins <= set(re.findall(r"^([a-z0-9._-]+==\S+)", whole, re.MULTILINE))
    assert not {pin.partition("==")[0] for pin in pins} & {"pytest", "ruff", "locust"}


@pytest.mark.parametrize("folder", ["compose", "kubernetes"])
def test_the_configurations_beside_deployments_are_taken(folder) -> None:
    loaded = configuration.load(DEPLOY / folder / "tritonwatch.yaml")
    assert loaded.slos


def test_compose_mounts_files_that_are_there() -> None:
    file = DEPLOY / "compose" / "compose.yaml"
    content = yaml.safe_load(file.read_text())
    services, named = content["services"], content["volumes"]
    assert {"triton", "tritonwatch", "prometheus", "alertmanager", "grafana"} == set(
        services
    )
    for service in services.values():
        for volume in service.get("volumes", ()):
            source = re.sub(r"\$\{MODELS:-([^}]+)\}", r"\1", volume).partition(":")[0]
            assert source in named or (file.parent / source).exists(), source
    assert services["tritonwatch"]["read_only"] is True


def test_promtool_takes_the_composes_prometheus(require_commands, tmp_path) -> None:
    require_commands("promtool")
    text = (DEPLOY / "compose" / "prometheus.yml").read_text()
    (tmp_path / "prometheus.yml").write_text(text)
    shutil.copytree(DEPLOY / "prometheus" / "rules", tmp_path / "rules")
    done = run("promtool", "check", "config", str(tmp_path / "prometheus.yml"))
    assert done.returncode == 0, done.stderr


class TestKubernetes:
    files = sorted((DEPLOY / "kubernetes").glob("*.yaml"))

    def test_every_object_is_valid(self) -> None:
        listed = yaml.safe_load(
            (DEPLOY / "kubernetes" / "kustomization.yaml").read_text()
        )["resources"]
        for name in listed:
            for document in documents((DEPLOY / "kubernetes" / name).read_text()):
                assert_valid(document)

    def test_the_autoscaler_asks_for_what_the_rules_record(self) -> None:
        folder = DEPLOY / "kubernetes" / "autoscaling"
        [scaler] = documents((folder / "horizontalpodautoscaler.yaml").read_text())
        assert_valid(scaler)
        [deployment] = documents(
            (DEPLOY / "kubernetes" / "deployment.yaml").read_text()
        )
        assert scaler["spec"]["scaleTargetRef"] == {
            "apiVersion": deployment["apiVersion"],
            "kind": deployment["kind"],
            "name": deployment["metadata"]["name"],
        }
        asked = [m["external"]["metric"]["name"] for m in scaler["spec"]["metrics"]]
        values = (folder / "prometheus-adapter-values.yaml").read_text()
        [rules] = documents(values)
        offered = rules["rules"]["external"]
        assert [rule["name"]["as"] for rule in offered] == asked
        recorded = {
            rule.get("record")
            for group in yaml.safe_load(rules_file([]))["groups"]
            for rule in group["rules"]
        }
        for rule in offered:
            assert rule["seriesQuery"] in recorded
            query = rule["metricsQuery"].replace("<<.Series>>", rule["seriesQuery"])
            query = query.replace("<<.LabelMatchers>>", 'model="resnet"')
            assert [s.metric for s in promql.selectors(query)] == [rule["seriesQuery"]]

    def test_the_sidecar_is_native_and_hardened(self) -> None:
        [deployment] = documents(
            (DEPLOY / "kubernetes" / "deployment.yaml").read_text()
        )
        pod = deployment["spec"]["template"]["spec"]
        [sidecar] = pod["initContainers"]
        assert sidecar["restartPolicy"] == "Always"
        assert sidecar["name"] == "tritonwatch"
        assert_hardened_pod(pod)

    def test_policies_select_the_pods_of_the_deployment(self) -> None:
        found = [
            document
            for file in self.files
            for document in documents(file.read_text())
            if "kind" in document
        ]
        labels = next(
            d["spec"]["template"]["metadata"]["labels"]
            for d in found
            if d["kind"] == "Deployment"
        )
        for document in found:
            spec = document.get("spec", {})
            if document["kind"] == "Service":
                assert spec["selector"] == labels
            if document["kind"] == "NetworkPolicy":
                assert spec["podSelector"]["matchLabels"] == labels
            if document["kind"] == "PodDisruptionBudget":
                assert spec["selector"]["matchLabels"] == labels


class TestHelm:
    def test_lint_finds_nothing(self) -> None:
        report = helm_python.lint(str(CHART), {}, strict=True)
        worth = [m for m in report["messages"] if m["severity"] > 1]
        assert (worth, report["errors"] or []) == ([], [])

    @pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
    def test_what_it_renders_is_valid(self, values) -> None:
        found = rendered(values)
        kinds = {d["kind"] for d in found}
        assert ("Deployment" in kinds) == (values.get("mode") != "sidecar")
        for document in found:
            if document["kind"] == "Deployment":
                pod = document["spec"]["template"]["spec"]
                assert [c["name"] for c in containers(pod)] == ["tritonwatch"]
                assert_hardened_pod(pod)

    @pytest.mark.parametrize(
        ("values", "host"),
        [
            ({}, "triton-0.triton"),
            ({"mode": "sidecar"}, "localhost"),
            ({"config": {"target": {"grpc": "mine:1"}}}, "triton-0.triton"),
        ],
    )
    def test_the_configuration_it_writes_names_one_process(
        self, values, host, tmp_path
    ) -> None:
        target = loaded_config(rendered(values), tmp_path).target
        grpc = values.get("config", {}).get("target", {}).get("grpc")
        assert target.grpc == (grpc or f"{host}:8001")
        assert (target.http, target.metrics) == (f"{host}:8000", f"{host}:8002")

    def test_a_changed_configuration_is_a_new_pod(self) -> None:
        sums = set()
        for values in ({}, {"config": {"target": {"grpc": "mine:1"}}}):
            found = one(rendered(values), "Deployment")
            template = found["spec"]["template"]["metadata"]
            sums.add(template["annotations"]["checksum/config"])
        assert len(sums) == 2

    @pytest.mark.parametrize(
        "values",
        [
            {"mode": "beside"},
            {"imagee": {}},
            {"scrape": {"podMonitor": {"enabled": "yes"}}},
            {"podLabels": {}},
        ],
    )
    def test_values_that_are_none_of_its_own_are_refused(self, values) -> None:
        if values == {"podLabels": {}}:
            # Helm merges maps, so an empty one adds nothing to the default.
            values = {"podLabels": []}
        with (
            helm_python.Chart.load(str(CHART)) as chart,
            pytest.raises(helm_python.HelmError),
        ):
            chart.validate_schema(values)

    def test_another_chart_takes_the_container_into_its_own_pod(self, tmp_path) -> None:
        found = rendered({}, within_another(tmp_path))
        pod = one(found, "Deployment")["spec"]["template"]["spec"]
        [sidecar] = pod["initContainers"]
        assert sidecar["restartPolicy"] == "Always"
        assert_hardened(sidecar)
        written = one(found, "ConfigMap")
        assert pod["volumes"][0]["configMap"]["name"] == written["metadata"]["name"]

    def test_a_changed_configuration_is_a_rollout_of_another_charts_pods(
        self, tmp_path
    ) -> None:
        """Else a refused one would stay unnoticed until no new pod starts."""
        chart = within_another(tmp_path)
        sums = set()
        for config in ({}, {"target": {"grpc": "mine:1"}}):
            found = one(
                rendered({"tritonwatch": {"config": config}}, chart), "Deployment"
            )
            template = found["spec"]["template"]["metadata"]
            sums.add(template["annotations"]["checksum/tritonwatch"])
        assert len(sums) == 2


class TestSystemd:
    def unit(self, tmp_path: Path) -> Path:
        text = (DEPLOY / "systemd" / "tritonwatch.service").read_text()
        file = tmp_path / "tritonwatch.service"
        file.write_text(text.replace("/opt/tritonwatch/bin/tritonwatch", "/bin/true"))
        return file

    def test_systemd_takes_the_unit(self, require_commands, tmp_path) -> None:
        require_commands("systemd-analyze")
        done = run("systemd-analyze", "verify", str(self.unit(tmp_path)))
        assert (done.returncode, done.stderr) == (0, "")

    def test_it_is_hardened_as_systemd_counts(self, require_commands, tmp_path) -> None:
        require_commands("systemd-analyze")
        done = run(
            "systemd-analyze",
            "security",
            "--offline=true",
            "--threshold=25",
            str(self.unit(tmp_path)),
        )
        assert done.returncode == 0, done.stdout[-600:] + done.stderr
