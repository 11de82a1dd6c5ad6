"""The capture for machines with a GPU works as far as that can be seen without one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import fake_nvml

CAPTURE = Path(__file__).parents[3] / "benchmarks" / "gpu_capture.py"


def test_a_capture_holds_our_energy_beside_nvidia_smis(nvml_library, tmp_path):
    board = fake_nvml.board(watts=300)
    script = fake_nvml.NvmlScript(tmp_path / "script", {0: board})
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text(
        "#!/bin/sh\nwhile :; do echo '2026/11/21 12:00:00.000, "
        f"{board['uuid']}, 300.00'; sleep 0.1; done\n"
    )
    smi.chmod(0o755)
    output = tmp_path / "capture.json"
    subprocess.run(
        [sys.executable, CAPTURE, "--seconds=4", f"--output={output}"],
        check=True,
        timeout=50,
        env={
            **os.environ,
            "PATH": f"{smi.parent}:{os.environ['PATH']}",
            "LD_LIBRARY_PATH": str(nvml_library.parent),
            fake_nvml.SCRIPT_VARIABLE: str(script.path),
        },
    )
    report = json.loads(output.read_text())
    (found,) = report["boards"].values()
    assert found["reading"] == "counter"
    assert len(found["readings"]) == 5
    assert found["nvidia_smi_samples"] > 5
    assert 0.8 < found["ratio"] < 1.3
