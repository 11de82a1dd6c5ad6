"""The shipped Helm chart as Kubernetes gets it, alone or within another chart."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import helm_python
import kubernetes_validate
import yaml

from exporter.config import configuration

if TYPE_CHECKING:
    from exporter.config.configuration import Config

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
CHART: Final = DEPLOY / "helm" / "tritonwatch"
# The operator's own kinds are in no Kubernetes schema.
_FOREIGN_KINDS: Final = {"PodMonitor", "ServiceMonitor", "PrometheusRule"}
_PARENT: Final = """
apiVersion: apps/v1
kind: Deployment
metadata:
  name: triton
spec:
  selector:
    matchLabels: {app.kubernetes.io/name: triton}
  template:
    metadata:
      labels: {app.kubernetes.io/name: triton}
      annotations:
        checksum/tritonwatch: {{ include "tritonwatch.config" .Subcharts.tritonwatch | sha256sum }}
    spec:
      initContainers:
        {{- include "tritonwatch.container" .Subcharts.tritonwatch | nindent 8 }}
      containers:
        - name: triton
          image: tritonserver:1
      volumes:
        {{- include "tritonwatch.volume" .Subcharts.tritonwatch | nindent 8 }}
"""


def documents(text: str) -> list[dict[str, Any]]:
    """Return the documents of a YAML file that are not empty."""
    return [d for d in yaml.safe_load_all(text) if d]


def one(found: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """Return the only document of a kind."""
    [document] = [d for d in found if d["kind"] == kind]
    return document


def assert_valid(document: dict[str, Any]) -> None:
    """Fail unless the oldest and a newer Kubernetes take the object."""
    if document["kind"] not in _FOREIGN_KINDS:
        for version in ("1.29", "1.33"):
            kubernetes_validate.validate(document, version, strict=True)


def rendered(values: dict[str, Any], chart: Path = CHART) -> list[dict[str, Any]]:
    """Return the chart's objects with these values, which its schema has to take."""
    with helm_python.Chart.load(str(chart)) as loaded:
        loaded.validate_schema(values)
        pages = loaded.render(values, name="prod", namespace="ml")
    found = [d for page in pages.values() for d in documents(page)]
    for document in found:
        assert_valid(document)
    return found


def loaded_config(found: list[dict[str, Any]], folder: Path) -> Config:
    """Return the configuration that the container reads, as tritonwatch loads it."""
    file = folder / "tritonwatch.yaml"
    file.write_text(one(found, "ConfigMap")["data"]["tritonwatch.yaml"], "utf-8")
    return configuration.load(file)


def within_another(folder: Path) -> Path:
    """Return a chart whose own pod takes the sidecar in."""
    parent = folder / "mine"
    shutil.copytree(CHART, parent / "charts" / "tritonwatch")
    (parent / "Chart.yaml").write_text(
        "apiVersion: v2\nname: mine\nversion: 1.0.0\n"
        "dependencies: [{name: tritonwatch, version: 0.1.0}]\n"
    )
    (parent / "values.yaml").write_text("tritonwatch: {mode: sidecar}\n")
    (parent / "templates").mkdir()
    (parent / "templates" / "triton.yaml").write_text(_PARENT)
    return parent
