"""Shipped deployments keep the state of the statistics where it outlives the process."""

from __future__ import annotations

import re
import shutil
from pathlib import Path, PurePosixPath

import helm_python
import pytest
import yaml

from exporter.config import configuration

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "tritonwatch"
STATE = PurePosixPath("/var/lib/tritonwatch")
IMAGE_USER = "65532"


def documents(text: str) -> list[dict]:
    return [d for d in yaml.safe_load_all(text) if d]


def statistics(file: Path):
    """The settings of the collector `statistics` in a configuration file."""
    collectors = configuration.load(file).all_collectors()
    return next(c for c in collectors if c.kind == "statistics")


def state_file(file: Path) -> PurePosixPath:
    path = statistics(file).state_file
    assert path is not None, f"{file} sets no state_file"
    return PurePosixPath(path)


def volume_at(container: dict, pod: dict, path: PurePosixPath) -> dict:
    """The writable volume of the pod that holds `path` in the container."""
    [mount] = [
        m
        for m in container["volumeMounts"]
        if path.is_relative_to(m["mountPath"]) and not m.get("readOnly")
    ]
    [volume] = [v for v in pod["volumes"] if v["name"] == mount["name"]]
    return volume


def test_kubernetes_keeps_it_over_a_restart_of_the_container() -> None:
    folder = DEPLOY / "kubernetes"
    [deployment] = documents((folder / "deployment.yaml").read_text())
    pod = deployment["spec"]["template"]["spec"]
    [sidecar] = pod["initContainers"]
    volume = volume_at(sidecar, pod, state_file(folder / "tritonwatch.yaml"))
    assert "sizeLimit" in volume["emptyDir"]


class TestHelm:
    def rendered(self, values: dict, chart: Path = CHART) -> list[dict]:
        with helm_python.Chart.load(str(chart)) as loaded:
            pages = loaded.render(values, name="prod", namespace="ml")
        return [d for page in pages.values() for d in documents(page)]

    def config(self, found: list[dict], tmp_path: Path) -> Path:
        [written] = [d for d in found if d["kind"] == "ConfigMap"]
        file = tmp_path / "tritonwatch.yaml"
        file.write_text(written["data"]["tritonwatch.yaml"])
        return file

    def pod(self, found: list[dict]) -> dict:
        [deployment] = [d for d in found if d["kind"] == "Deployment"]
        return deployment["spec"]["template"]["spec"]

    @pytest.mark.parametrize(
        "collectors",
        [
            None,
            [],
            [{"kind": "traces"}],
            [{"kind": "traces"}, {"kind": "statistics", "interval_seconds": 7}],
        ],
    )
    def test_it_is_kept_whatever_collectors_the_values_list(
        self, tmp_path, collectors
    ) -> None:
        values = {} if collectors is None else {"config": {"collectors": collectors}}
        found = self.rendered(values)
        file = self.config(found, tmp_path)
        pod = self.pod(found)
        volume = volume_at(pod["containers"][0], pod, state_file(file))
        assert "sizeLimit" in volume["emptyDir"]
        kinds = {c.kind for c in configuration.load(file).collectors}
        assert kinds == {"statistics"} | {c["kind"] for c in collectors or ()}
        if len(collectors or ()) > 1:
            assert statistics(file).interval_seconds == 7

    def test_a_file_that_the_values_name_stays(self, tmp_path) -> None:
        mine = {"kind": "statistics", "state_file": str(STATE / "mine.json")}
        file = self.config(self.rendered({"config": {"collectors": [mine]}}), tmp_path)
        assert state_file(file) == STATE / "mine.json"

    def test_a_claim_keeps_it_over_a_new_pod(self, tmp_path) -> None:
        found = self.rendered({"state": {"claim": "books"}})
        pod = self.pod(found)
        path = state_file(self.config(found, tmp_path))
        volume = volume_at(pod["containers"][0], pod, path)
        assert volume["persistentVolumeClaim"] == {"claimName": "books"}
        # A volume of a claim belongs to root until Kubernetes gives it to the group.
        assert pod["securityContext"] == {"fsGroup": int(IMAGE_USER)}

    def test_a_sidecar_in_another_chart_brings_its_volume(self, tmp_path) -> None:
        parent = tmp_path / "mine"
        shutil.copytree(CHART, parent / "charts" / "tritonwatch")
        (parent / "Chart.yaml").write_text(
            "apiVersion: v2\nname: mine\nversion: 1.0.0\n"
            "dependencies: [{name: tritonwatch, version: 0.1.0}]\n"
        )
        (parent / "values.yaml").write_text("tritonwatch: {mode: sidecar}\n")
        (parent / "templates").mkdir()
        (parent / "templates" / "triton.yaml").write_text(
            "kind: Deployment\nspec:\n  template:\n    spec:\n      initContainers:\n"
            '        {{- include "tritonwatch.container" .Subcharts.tritonwatch | nindent 8 }}\n'
            "      volumes:\n"
            '        {{- include "tritonwatch.volume" .Subcharts.tritonwatch | nindent 8 }}\n'
        )
        found = self.rendered({}, parent)
        pod = self.pod(found)
        path = state_file(self.config(found, tmp_path))
        assert "emptyDir" in volume_at(pod["initContainers"][0], pod, path)


def test_compose_keeps_it_in_a_named_volume_that_the_image_s_user_can_write() -> None:
    folder = DEPLOY / "compose"
    content = yaml.safe_load((folder / "compose.yaml").read_text())
    path = state_file(folder / "tritonwatch.yaml")
    [source] = [
        source
        for source, target, *options in (
            volume.split(":")
            for volume in content["services"]["tritonwatch"]["volumes"]
        )
        if path.is_relative_to(target) and "ro" not in options
    ]
    assert source in content["volumes"]
    # A new named volume takes the owner of the folder that the image has there.
    image = (DEPLOY / "docker" / "Dockerfile").read_text().rpartition("FROM ")[2]
    assert re.search(
        rf"^RUN install -d -o {IMAGE_USER} -g {IMAGE_USER} {path.parent}$",
        image,
        re.MULTILINE,
    )


def test_systemd_keeps_it_in_the_unit_s_state_directory() -> None:
    folder = DEPLOY / "systemd"
    unit = (folder / "tritonwatch.service").read_text()
    [name] = re.findall(r"^StateDirectory=(\S+)$", unit, re.MULTILINE)
    assert state_file(folder / "tritonwatch.yaml").parent == Path("/var/lib") / name
