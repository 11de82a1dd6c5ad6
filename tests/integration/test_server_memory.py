"""Memory of a real Triton and of its models' processes, as /proc has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.system import processes
from exporter.system.local_server import SERVER

pytestmark = pytest.mark.triton

RESIDENT = "triton_process_resident_memory_bytes"


def in_status(pid: int) -> float:
    """Resident bytes by another file than the one that is read."""
    lines = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
    [line] = [line for line in lines if line.startswith("VmRSS:")]
    return 1024.0 * int(line.split()[1])


def test_server_and_models_have_their_own_memory(
    playground, settings, start_sidecar
) -> None:
    sidecar = start_sidecar(settings(playground.triton))
    page = sidecar.wait(
        lambda p: p.label(RESIDENT, "model") == {"", "double", "sleepy"}, 30
    )
    port = int(playground.triton.grpc.rpartition(":")[2])
    [server] = processes.listening_on(port, SERVER)
    stubs = {
        model: [
            pid
            for pid in processes.family_of({server})
            if f"/{model}/1/model.py" in " ".join(processes.arguments_of(pid))
        ]
        for model in ("double", "sleepy")
    }
    assert page.value(RESIDENT, process="server") == pytest.approx(
        in_status(server), rel=0.2
    )
    for model, pids in stubs.items():
        assert pids
        assert page.value(RESIDENT, process="backend", model=model) == pytest.approx(
            sum(in_status(pid) for pid in pids), rel=0.2
        )
    playground.model("sleepy", "unload")
    sidecar.wait(lambda p: p.label(RESIDENT, "model") == {"", "double"}, 30)
