"""What is measured of a real server's death is what a client sees that shares nothing."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import independent_client
import numpy as np
import pytest
from waiting import patience

from exporter.triton.embedded import EmbeddedTriton
from loadtests.chaos import experiment
from loadtests.chaos.measuring.findings import findings
from loadtests.chaos.running.pace import Supervisor
from loadtests.chaos.running.runner import RunOptions, run

if TYPE_CHECKING:
    from collections.abc import Generator

    from loadtests.chaos.measuring.observations import Evidence
    from loadtests.chaos.measuring.recovery import Recovery

pytestmark = pytest.mark.triton

MODEL = "digits_fp32"
MODELS = Path(__file__).parents[3] / "deploy" / "models"
RATE = 100
BEFORE, AFTER, HOLD = 2.0, 6.0, 2.5
_ANSWER_SECONDS = independent_client.TIMEOUT_SECONDS
"""Both clients wait that long and call nothing late: on a busy machine one of them has
late answers where the other has none, and only the fault is to be compared."""
STARTED = re.compile(
    r'^I\d{4} \d\d:(\d\d):(\d\d\.\d+) .*"Started HTTPService', re.MULTILINE
)
"""Of Triton's log, which names neither year nor time zone."""


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


def provider(func: str, **arguments: Any) -> dict[str, Any]:
    module = "loadtests.chaos.toolkit"
    return {"type": "python", "module": module, "func": func, "arguments": arguments}


def document(server: EmbeddedTriton, fault: dict[str, Any], seconds: float) -> Any:
    """The fault, for so long, and some time to come back."""
    asked = provider("availability", window_seconds=1.0)
    probe = {"type": "probe", "name": "availability", "tolerance": [0.0, 1.0]}
    action = {"type": "action", "name": "break it", "pauses": {"after": seconds}}
    return {
        "title": "A fault, seen by two clients",
        "description": "Ours and one that shares nothing with it.",
        "steady-state-hypothesis": {
            "title": "h",
            "probes": [{**probe, "provider": asked}],
        },
        "method": [{**action, "provider": provider("inject", fault=fault)}],
        "rollbacks": [{"type": "action", "name": "undo", "provider": provider("undo")}],
        "extensions": [
            {
                "name": "tritonwatch",
                "target": {
                    "kind": "process",
                    "called": "two",
                    "grpc": server.grpc,
                    "http": server.http,
                },
                "load": {
                    "models": [{"model": MODEL}],
                    "protocol": "http",
                    "timeout_seconds": _ANSWER_SECONDS,
                    "profile": {"kind": "constant", "requests_per_second": RATE},
                },
                "timing": {"before_seconds": BEFORE, "after_seconds": AFTER},
                "recovery": {
                    "hold_seconds": HOLD,
                    "latency_limit_seconds": _ANSWER_SECONDS,
                },
                "during": "watch",
            }
        ],
    }


def seen_by_both(
    server: EmbeddedTriton, folder: Path, fault: dict[str, Any], seconds: float
) -> tuple[Evidence, np.ndarray]:
    """The evidence, and the other client's rows (N, 4): due, sent, ended, well."""
    log = folder / "log.txt"
    program = [sys.executable, independent_client.__file__, server.http, MODEL]
    # It begins before our load does, and ends after it.
    with subprocess.Popen(
        [*program, str(RATE), str(log)], stdin=subprocess.PIPE
    ) as other:
        loaded = experiment.parse(document(server, fault, seconds), "two")
        options = RunOptions(allow=("process:two",), state=folder / "state")
        (evidence,) = run(loaded, options)
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


def longest_wait(rows: np.ndarray, since: float) -> float:
    """The longest time between two right answers from then on."""
    _, _, ended, well = rows.T
    right = np.sort(ended[(well == 1) & (ended >= since - 1)])
    return float(np.diff(right).max())


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


def started_by_its_log(server: EmbeddedTriton, around: float) -> float:
    """Unix time of the latest start; zones are quarters of an hour apart."""
    *_, (minutes, seconds) = STARTED.findall(server.log.read_text("utf-8"))
    off = float(minutes) * 60 + float(seconds) - around
    return around + (off + 450) % 900 - 450


@dataclass(frozen=True)
class Kills:
    """Of each kill, in seconds."""

    recovered: np.ndarray
    """From the injection to SLO-recovered."""
    apart: np.ndarray
    """By how much the other client is off."""
    late: np.ndarray
    """By how much the machine made the other client late, at worst."""
    since_start: np.ndarray
    """From the server's start, as its own log has it, to SLO-recovered."""


def killed(server: EmbeddedTriton, folder: Path, times: int) -> Kills:
    took, apart, late, since = [], [], [], []
    for place in range(times):
        mine = folder / str(place)
        mine.mkdir()
        evidence, rows = seen_by_both(server, mine, {"kind": "kill_server"}, 2.0)
        recovery, injected = recovery_of(evidence)
        assert recovery.first_held_seconds is not None, recovery.reason
        assert recovery.outage is not None
        theirs = longest_wait(rows, injected)
        late.append(lateness(rows, injected))
        assert recovery.outage.seconds == pytest.approx(theirs, abs=0.2 + late[-1])
        ours = evidence.started_at + recovery.first_held_seconds
        took.append(ours - injected)
        apart.append(ours - recovered_by(rows, injected))
        since.append(ours - started_by_its_log(server, ours))
    found = Kills(*map(np.array, (took, apart, late, since)))
    print(np.round(found.recovered, 3), "s to SLO-recovered")
    print(np.round(found.since_start, 3), "s of it since the server's start")
    print(np.round(found.apart, 3), "s off the other client")
    print(np.round(found.late, 3), "s late, the other client at worst")
    return found


@pytest.mark.slow
def test_a_hang_is_as_long_to_us_as_to_another_client(
    server: EmbeddedTriton, tmp_path: Path
) -> None:
    evidence, rows = seen_by_both(server, tmp_path, {"kind": "freeze_server"}, 1.0)
    recovery, injected = recovery_of(evidence)
    assert recovery.outage is not None
    theirs = longest_wait(rows, injected)
    print(f"{recovery.outage.seconds:.3f} s to us, {theirs:.3f} s to the other")
    assert recovery.outage.seconds == pytest.approx(
        theirs, abs=0.1 + lateness(rows, injected)
    )


def test_a_killed_server_is_back_for_us_when_it_is_for_another_client(
    server: EmbeddedTriton, tmp_path: Path
) -> None:
    # 50 ms on a quiet machine; where others compute, either client may be woken late.
    found = killed(server, tmp_path, 1)
    assert abs(found.apart[0]) < 0.2 + found.late[0]


@pytest.mark.slow
def test_five_kills_are_recovered_from_alike(
    server: EmbeddedTriton, tmp_path: Path
) -> None:
    found = killed(server, tmp_path, 5)
    assert float(np.median(np.abs(found.apart))) <= 0.05
    # How long a server takes to start is the machine's, and no two starts are the same
    # where others compute; what is seen of a start is ours.
    assert within(found.since_start) <= 0.2


def within(values: np.ndarray) -> float:
    """No value is further than that from their median."""
    return float(np.max(np.abs(values - np.median(values))))
