"""An experiment's secret goes where the experiment sends it, and into no journal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from process_experiments import document as experiment
from process_experiments import of_process
from receiver import Receiver

if TYPE_CHECKING:
    from exporter.triton.embedded import EmbeddedTriton

pytestmark = pytest.mark.triton

CANARY = "canary-4711"
TRITONWATCH = str(Path(sys.executable).with_name("tritonwatch"))


def document(server: EmbeddedTriton, url: str) -> dict[str, Any]:
    """Someone is called on the way; the token is the environment's."""
    call = {
        "type": "http",
        "url": f"{url}/go",
        "method": "POST",
        "headers": {"Authorization": "Bearer ${token}"},
        "secrets": ["gateway"],
    }
    action = {"type": "action", "name": "call", "provider": call}
    return {
        **experiment(of_process(server), action),
        "title": "Secretive",
        "secrets": {"gateway": {"token": {"type": "env", "key": "CANARY"}}},
    }


@pytest.mark.slow
@pytest.mark.parametrize("status", [200, 500])
def test_a_secret_is_in_nothing_that_is_kept_or_told(triton, status, tmp_path) -> None:
    receiver = Receiver(status)
    inside = receiver.url.replace("http://", f"http://user:{CANARY}@")
    (tmp_path / "secretive.yaml").write_text(
        yaml.safe_dump(document(triton, receiver.url)), "utf-8"
    )
    told: list[str] = []
    for command in (
        (
            *("run", "secretive.yaml", "--allow", "process:test", "--allow", "foreign"),
            *("--state", "state"),
            *("--json", "journals", "--sidecar", inside),
        ),
        ("run", "secretive.yaml", "--export", "exported"),
        ("report", "journals/secretive.json", "--html", "page.html"),
    ):
        done = subprocess.run(
            [TRITONWATCH, "chaos", *command],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
            env={**os.environ, "CANARY": CANARY},
        )
        assert done.returncode in {0, 1, 3}, done.stderr
        assert "Traceback" not in done.stderr
        told += [done.stdout, done.stderr]
    receiver.close()
    sent = {path: headers for path, headers, _ in receiver.received}
    assert sent["/go"]["authorization"] == f"Bearer {CANARY}"
    assert "/v1/runs" in sent
    assert not [body for _, _, body in receiver.received if CANARY.encode() in body]
    assert CANARY not in "".join(told)
    kept = [f for f in tmp_path.rglob("*") if f.is_file()]
    assert {"secretive.json", "page.html"} <= {f.name for f in kept}
    assert not [f for f in kept if CANARY.encode() in f.read_bytes()]
    journal = json.loads((tmp_path / "journals" / "secretive.json").read_text())
    assert journal["experiment"]["secrets"]["gateway"]["token"]["key"] == "CANARY"
