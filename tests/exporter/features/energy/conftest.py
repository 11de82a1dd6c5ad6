"""The scripted NVML, built once and loaded below the real Python binding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import fake_nvml
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


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
