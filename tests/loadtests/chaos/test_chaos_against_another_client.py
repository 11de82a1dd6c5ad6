"""What is measured of a real server's death is what a client sees that shares nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import independent_client
import numpy as np
import pytest
from process_experiments import MODEL, MODELS, Experiments, injecting
from waiting import patience

from exporter.triton.embedded import EmbeddedTriton
from loadtests.chaos.measuring.findings import findings
from loadtests.chaos.running.pace import Supervisor

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from loadtests.chaos.measuring.observations import Evidence
    from loadtests.chaos.measuring.recovery import Recovery

pytestmark = pytest.mark.triton

RATE = 100
BEFORE, AFTER, HOLD = 2.0, 6.0, 2.5
_ANSWER_SECONDS = independent_client.TIMEOUT_SECONDS
"""Both clients wait that long and call nothing late: on a busy machine one of them has
late answers where the other has none, and only the fault is to be compared."""


@pytest.fixture(scope="module")
def server(
    triton_environment: Path, tmp_path_factory: pytest.TempPathFactory
) -> Generator[EmbeddedTriton]:
    """It is started again when it dies."""
    folder = tmp_path_factory.mktemp("kept-up")
    shutil.copytree(MODELS / MODEL, folder / "models" / MODEL)
    started = EmbeddedTriton(
        folder / "models", environment=triton_environment, log=folder / "log"
    )
    with (
        started,
        Supervisor(
            "server", lambda: started.running, started.start, 0.2, lambda *_: None
        ),
    ):
        yield started


def seen_by_both(
    server: EmbeddedTriton, folder: Path, fault: dict[str, Any], seconds: float
) -> tuple[Evidence, np.ndarray]:
    """The evidence, and the other client's rows (N, 4): due, sent, ended, well."""
    log = folder / "log.txt"
    program = [sys.executable, independent_client.__file__, server.http, MODEL]
    ours = Experiments(server, folder / "state")
    document = ours.document(
        injecting(fault, seconds),
        load={
            "models": [{"model": MODEL}],
            "protocol": "http",
            "timeout_seconds": _ANSWER_SECONDS,
            "profile": {"kind": "constant", "requests_per_second": RATE},
        },
        timing={"before_seconds": BEFORE, "after_seconds": AFTER},
        recovery={"hold_seconds": HOLD, "latency_limit_seconds": _ANSWER_SECONDS},
        during="watch",
    )
    # It begins before our load does, and ends after it.
    with subprocess.Popen(
        [*program, str(RATE), str(log)], stdin=subprocess.PIPE
    ) as other:
        evidence = ours.run(document)
        other.communicate(timeout=patience())
        assert other.returncode == 0
    return evidence, np.loadtxt(log)


def recovered_by(rows: np.ndarray, since: float) -> float:
    """Unix time when the first request was due after which all went well for `HOLD`."""
    due, _, ended, well = rows.T
    good = (well == 1) & (ended - due <= _ANSWER_SECONDS)
    bad = due[~good & (ended >= since)]
    for start in bad.tolist():
        after = due[good & (due > start)]
        if after.size and not ((bad > start) & (bad < after[0] + HOLD)).any():
            return float(after[0])
    raise AssertionError("the other client saw no recovery")


def lateness(rows: np.ndarray, since: float) -> float:
    """By how many seconds the machine made the other client late, at worst."""
    due, sent, _, _ = rows[rows[:, 0] >= since].T
    return float((sent - due).max())


def recovery_of(evidence: Evidence) -> tuple[Recovery, float]:
    """Of the only fault, and when it was injected in Unix time."""
    assert evidence.status == "completed", evidence.problems
    (fault,) = findings(evidence).faults
    assert fault.recovery is not None
    return fault.recovery, evidence.started_at + fault.span.inject_seconds


def test_a_killed_server_is_back_for_us_when_it_is_for_another_client(
    server: EmbeddedTriton, tmp_path: Path
) -> None:
    evidence, rows = seen_by_both(server, tmp_path, {"kind": "kill_server"}, 2.0)
    recovery, injected = recovery_of(evidence)
    assert recovery.first_held_seconds is not None, recovery.reason
    assert recovery.outage is not None
    _, _, ended, well = rows.T
    right = np.sort(ended[(well == 1) & (ended >= injected - 1)])
    # 50 ms on a quiet machine; where others compute, either client may be woken late.
    apart = 0.2 + lateness(rows, injected)
    assert recovery.outage.seconds == pytest.approx(np.diff(right).max(), abs=apart)
    ours = evidence.started_at + recovery.first_held_seconds
    assert ours == pytest.approx(recovered_by(rows, injected), abs=apart)
