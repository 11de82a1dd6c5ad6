"""The shipped pods start, stay up, and are reached: with any configuration and Kubernetes."""

from __future__ import annotations

import helm_python
import pytest
import yaml
from helm_charts import DEPLOY, documents, loaded_config, one, rendered

OPENAI = {"kind": "openai", "url": "http://vllm:8000"}
MODES = ["standalone", "sidecar"]
MONITOR = {"enabled": True}


def manifests() -> list[dict]:
    folder = DEPLOY / "kubernetes"
    listed = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    texts = [(folder / name).read_text() for name in listed]
    return [d for text in texts for d in documents(text)]


def open_ports(found: list[dict]) -> set[object]:
    """The ports to which the Service and the NetworkPolicy lead."""
    ports = {p["targetPort"] for p in one(found, "Service")["spec"]["ports"]}
    for rule in one(found, "NetworkPolicy")["spec"]["ingress"]:
        ports |= {port["port"] for port in rule["ports"]}
    return ports


class TestTriton:
    pod = one(manifests(), "Deployment")["spec"]["template"]["spec"]

    def test_it_may_load_its_models_for_half_an_hour(self) -> None:
        [triton] = self.pod["containers"]
        probe = triton["startupProbe"]
        # Until it has passed, Kubernetes asks neither liveness nor readiness.
        assert probe["httpGet"]["path"] == "/v2/health/live"
        seconds = probe["periodSeconds"] * probe["failureThreshold"]
        assert seconds >= 1800
        rollout = one(manifests(), "Deployment")["spec"]["progressDeadlineSeconds"]
        assert rollout > seconds


class TestPortsOfNativeSidecars:
    """Before 1.32 Kubernetes finds no names of ports of init containers."""

    def test_the_manifests_name_none(self) -> None:
        pod = one(manifests(), "Deployment")["spec"]["template"]["spec"]
        named = {p["name"] for c in pod["initContainers"] for p in c["ports"]}
        ports = open_ports(manifests())
        assert 8003 in ports
        assert not named & ports

    @pytest.mark.parametrize("mode", MODES)
    def test_the_chart_names_none(self, mode) -> None:
        found = rendered({"mode": mode, "networkPolicy": {"enabled": True}})
        assert {p for p in open_ports(found) if isinstance(p, str)} == set()


class TestConfiguration:
    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize(
        "config",
        [
            {"target": OPENAI},
            {"target": OPENAI | {"metrics": "http://vllm:8000/metrics"}},
            {"target": OPENAI, "collectors": [{"kind": "backend_page"}]},
            {"target": {"kind": "triton", "grpc": "a:1", "http": None}},
            {"collectors": None},
            {"listen": {"port": 9000}},
        ],
    )
    def test_the_container_starts_with_it(self, config, mode, tmp_path) -> None:
        target = loaded_config(
            rendered({"mode": mode, "config": config}), tmp_path
        ).target
        given = config.get("target") or {}
        assert target.kind == given.get("kind", "triton")
        for name, value in given.items():
            assert getattr(target, name) == value

    @pytest.mark.parametrize("port", [8003, 9000])
    def test_the_port_it_listens_on_is_the_one_that_is_reached(
        self, port, tmp_path
    ) -> None:
        config = {} if port == 8003 else {"listen": {"port": port}}
        values = {"config": config, "networkPolicy": {"enabled": True}}
        found = rendered(values)
        template = one(found, "Deployment")["spec"]["template"]
        [container] = template["spec"]["containers"]
        [declared] = container["ports"]
        for name in ("startupProbe", "livenessProbe"):
            assert container[name]["httpGet"]["port"] == declared["name"]
        scraped = template["metadata"]["annotations"]["prometheus.io/port"]
        assert loaded_config(found, tmp_path).listen.port == port
        assert (declared["containerPort"], scraped) == (port, str(port))
        assert open_ports(found) == {port}
        # Clients of the Service keep their port.
        assert [p["port"] for p in one(found, "Service")["spec"]["ports"]] == [8003]

    @pytest.mark.parametrize(
        ("listen", "said"),
        [
            (None, "listen"),
            ({"port": 0}, "listen.port"),
            ({"port": "${env:PORT}"}, "listen.port"),
            ({"address": "127.0.0.1"}, "config.listen.address: found 127.0.0.1"),
            ({"address": "[::1]"}, "config.listen.address"),
            ({"address": "localhost"}, "config.listen.address"),
        ],
    )
    def test_what_no_probe_could_reach_is_refused(self, listen, said) -> None:
        with pytest.raises(helm_python.HelmError) as refused:
            rendered({"config": {"listen": listen}})
        assert said in str(refused.value).replace("/", ".")
