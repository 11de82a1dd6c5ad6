"""The password of a sidecar that runs are announced to is in nothing that is kept or told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from process_experiments import FREEZE, injecting, of_process
from process_experiments import document as experiment
from receiver import Receiver
from waiting import patience

pytestmark = pytest.mark.triton

CANARY = "canary-4711"
TRITONWATCH = str(Path(sys.executable).with_name("tritonwatch"))


@pytest.mark.slow
@pytest.mark.parametrize("status", [200, 500])
def test_a_password_is_in_nothing_that_is_kept_or_told(
    triton, status, tmp_path
) -> None:
    receiver = Receiver(status)
    inside = receiver.url.replace("http://", f"http://user:{CANARY}@")
    (tmp_path / "secretive.yaml").write_text(
        yaml.safe_dump(experiment(of_process(triton), injecting(FREEZE, 0.2))), "utf-8"
    )
    told: list[str] = []
    for command in (
        (
            *("run", "secretive.yaml", "--allow", "process:test"),
            *("--state", "state"),
            *("--json", "journals", "--sidecar", inside),
        ),
        ("report", "journals/secretive.json", "--html", "page.html"),
    ):
        done = subprocess.run(
            [TRITONWATCH, "chaos", *command],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=patience(90),
            check=False,
        )
        assert done.returncode in {0, 1, 3}, done.stderr
        assert "Traceback" not in done.stderr
        told += [done.stdout, done.stderr]
    receiver.close()
    sent = {path: headers for path, headers, _ in receiver.received}
    assert "authorization" in sent["/v1/runs"]
    assert not [body for _, _, body in receiver.received if CANARY.encode() in body]
    assert CANARY not in "".join(told)
    kept = [f for f in tmp_path.rglob("*") if f.is_file()]
    assert {"secretive.json", "page.html"} <= {f.name for f in kept}
    assert not [f for f in kept if CANARY.encode() in f.read_bytes()]
