"""Shipped deployments keep the state of the statistics where it outlives the process."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import pytest
import yaml
from helm_charts import DEPLOY, documents, loaded_config, one, rendered, within_another

from exporter.config import configuration

if TYPE_CHECKING:
    from exporter.config.configuration import Config

STATE = PurePosixPath("/var/lib/tritonwatch")
IMAGE_USER = "65532"


def statistics(config: Config):
    """The settings of the collector `statistics`."""
    return next(c for c in config.all_collectors() if c.kind == "statistics")


def state_file(config: Config) -> PurePosixPath:
    path = statistics(config).state_file
    assert path is not None
    return PurePosixPath(path)


def shipped(folder: str) -> PurePosixPath:
    return state_file(configuration.load(DEPLOY / folder / "tritonwatch.yaml"))


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
    [deployment] = documents((DEPLOY / "kubernetes" / "deployment.yaml").read_text())
    pod = deployment["spec"]["template"]["spec"]
    [sidecar] = pod["initContainers"]
    volume = volume_at(sidecar, pod, shipped("kubernetes"))
    assert "sizeLimit" in volume["emptyDir"]


class TestHelm:
    def pod(self, found: list[dict]) -> dict:
        return one(found, "Deployment")["spec"]["template"]["spec"]

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
        found = rendered(values)
        config, pod = loaded_config(found, tmp_path), self.pod(found)
        volume = volume_at(pod["containers"][0], pod, state_file(config))
        assert "sizeLimit" in volume["emptyDir"]
        kinds = {c.kind for c in config.collectors}
        assert kinds == {"statistics"} | {c["kind"] for c in collectors or ()}
        if len(collectors or ()) > 1:
            assert statistics(config).interval_seconds == 7

    def test_a_file_that_the_values_name_stays(self, tmp_path) -> None:
        mine = {"kind": "statistics", "state_file": str(STATE / "mine.json")}
        found = rendered({"config": {"collectors": [mine]}})
        assert state_file(loaded_config(found, tmp_path)) == STATE / "mine.json"

    def test_a_claim_keeps_it_over_a_new_pod(self, tmp_path) -> None:
        found = rendered({"state": {"claim": "books"}})
        pod = self.pod(found)
        path = state_file(loaded_config(found, tmp_path))
        volume = volume_at(pod["containers"][0], pod, path)
        assert volume["persistentVolumeClaim"] == {"claimName": "books"}
        # A volume of a claim belongs to root until Kubernetes gives it to the group.
        assert pod["securityContext"] == {"fsGroup": int(IMAGE_USER)}

    def test_a_sidecar_in_another_chart_brings_its_volume(self, tmp_path) -> None:
        found = rendered({}, within_another(tmp_path))
        pod = self.pod(found)
        path = state_file(loaded_config(found, tmp_path))
        assert "emptyDir" in volume_at(pod["initContainers"][0], pod, path)


def test_compose_keeps_it_in_a_named_volume_that_the_image_s_user_can_write() -> None:
    folder = DEPLOY / "compose"
    content = yaml.safe_load((folder / "compose.yaml").read_text())
    path = shipped("compose")
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
    unit = (DEPLOY / "systemd" / "tritonwatch.service").read_text()
    [name] = re.findall(r"^StateDirectory=(\S+)$", unit, re.MULTILINE)
    assert shipped("systemd").parent == PurePosixPath("/var/lib") / name
