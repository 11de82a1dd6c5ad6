"""The scripted NVML, built once and loaded below the real Python binding."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from exporter.testing import fake_nvml

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """libnvidia-ml.so.1 of our own; skips without a C compiler, fails in CI."""
    if fake_nvml.compiler() is None:
        problem = "found no C compiler: apt-get install gcc libc6-dev"
        if os.environ.get("CI"):
            pytest.fail(problem, pytrace=False)
        pytest.skip(problem)
    return fake_nvml.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def nvml(
    nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., fake_nvml.NvmlScript]:
    """Script the boards of this process: `nvml({0: board()})`."""

    def scripted(boards: dict[int, fake_nvml.Fields]) -> fake_nvml.NvmlScript:
        script = fake_nvml.NvmlScript(tmp_path / "nvml", boards)
        fake_nvml.load(nvml_library, script.path)
        monkeypatch.setenv("LD_LIBRARY_PATH", str(nvml_library.parent))
        return script

    return scripted
