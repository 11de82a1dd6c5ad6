"""The demo in which a model starts to lie: the line, /metrics and the alert all say so."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from exporter.output.exposition import parse_text

LIMITS = ("--scenario-after", "6", "--duration", "150")
COMMAND = Path(sys.executable).with_name("tritonwatch")

pytestmark = pytest.mark.triton


def test_a_model_that_starts_to_lie_is_told_everywhere(
    triton_environment, require_commands
) -> None:
    require_commands("prometheus")
    demo = subprocess.Popen(
        [COMMAND, *["demo", "--scenario", "silent-failure", "--port", "0"], *LIMITS],
        stdout=subprocess.PIPE,
        text=True,
    )
    before, after, page = [], [], b""
    try:
        lied = False
        metrics = ""
        for line in demo.stdout:
            metrics = metrics or "".join(re.findall(r"metrics +(http\S+)", line)[:1])
            lied |= line.startswith("--- from now on digits_fp32")
            (after if lied else before).append(line)
            if "ALERTS FIRING" in line and "OUT OF CONTROL" in line and "0.0%" in line:
                with urllib.request.urlopen(metrics, timeout=10) as reply:
                    page = reply.read()
                break
    finally:
        demo.terminate()
        demo.communicate(timeout=30)
    assert any("golden digits_fp32 accuracy 97.1% match 100.0%" in x for x in before)
    assert not [x for x in before if "LIES" in x or "ALERTS" in x]
    last = after[-1]
    assert page, f"not told within {LIMITS[-1]} s: {after[-3:]}"
    # Triton itself sees nothing.
    assert "Triton up, 5/5 models serving" in last
    assert "LIES: expected, labels" in last
    assert "TritonSilentFailure digits_fp32" in last
    assert "TritonProcessOutOfControl digits-accuracy" in last
    said = {
        (name, *sorted(labels.values())): value
        for name, labels, value in parse_text(page)
    }
    assert said["triton_model_ready", "1", "digits_fp32"] == 1
    failing = ("triton_golden_failing", "1", "digits_fp32", "expected", "held_out")
    assert said[failing] == 1
    assert said["triton_spc_alarm", "cusum", "digits-accuracy"] == 1
