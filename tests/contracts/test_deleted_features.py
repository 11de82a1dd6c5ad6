"""A feature is its folder and a line in `AnyCollector`: without both, all else works."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from pathlib import Path
from typing import get_args

import pytest
from commands import tritonwatch
from fake_triton import FakeModel, FakeTriton
from sidecars import SidecarProcess

from exporter.config import configuration
from exporter.config.kinds import AnyCollector

ROOT = Path(__file__).parents[2]
UNION = Path("exporter/config/kinds.py")
IN_THE_CONFIGURATION = re.findall(
    r"exporter\.features\.(\w+)", Path(configuration.__file__).read_text()
)
"""Features whose settings the configuration itself names, as a default or a section."""


def optional_features() -> dict[str, list[str]]:
    """Return the names of their settings by feature."""
    found: dict[str, list[str]] = {}
    for settings in get_args(get_args(AnyCollector)[0]):
        package, _, name = settings.__module__.partition(".features.")
        feature = name.partition(".")[0]
        if package == "exporter" and feature not in IN_THE_CONFIGURATION:
            found.setdefault(feature, []).append(settings.__name__)
    return found


@pytest.mark.parametrize("feature", optional_features())
def test_the_sidecar_serves_without_the_feature(feature, tmp_path) -> None:
    copy = tmp_path / "copy"
    for package in ("exporter", "drift", "pages"):
        shutil.copytree(
            ROOT / package, copy / package, ignore=shutil.ignore_patterns("*.pyc")
        )
    shutil.rmtree(copy / "exporter" / "features" / feature)
    union = (copy / UNION).read_text()
    for name in optional_features()[feature]:
        union = re.sub(rf"from \S+ import {name}\n", "", union)
        union = re.sub(rf"\b{name}\s*\|\s*|\s*\|\s*{name}\b", "", union)
    (copy / UNION).write_text(union)
    with FakeTriton([FakeModel("m")]) as fake:
        target = {"grpc": fake.grpc, "http": fake.http, "metrics": fake.metrics}
        listen = {"address": "127.0.0.1", "port": 0}
        config = {"target": target, "listen": listen}
        sidecar = SidecarProcess(config, tmp_path, within=("env", f"PYTHONPATH={copy}"))
        with contextlib.closing(sidecar):
            sidecar.wait_listening()
            sidecar.wait(lambda page: page.value("triton_up") == 1)
            sidecar.write({**config, "collectors": [{"kind": feature}]})
            checked = tritonwatch(
                *("check", "--config", sidecar.file),
                env={**os.environ, "PYTHONPATH": str(copy)},
            )
    assert checked.returncode == 1
    assert f'found "{feature}"' in checked.stderr
