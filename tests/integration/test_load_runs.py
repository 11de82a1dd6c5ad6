"""A load run as the sidecar sees it."""

from __future__ import annotations

import json
import re
import subprocess
import time
from typing import TYPE_CHECKING

import pytest
from commands import COMMAND, tritonwatch
from fake_triton import FakeModel, FakeTriton, Slow
from waiting import patience

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def fake():
    with FakeTriton([FakeModel("m")]) as server:
        yield server


def command(*arguments: str) -> list[str]:
    return [COMMAND, "load", "run", "--quiet", *arguments]


def test_a_run_appears_in_the_sidecar_and_goes_with_its_end(
    start_sidecar, settings, fake
) -> None:
    sidecar = start_sidecar(watching_runs(settings(fake)))
    tap = tap_of(sidecar)
    run = subprocess.Popen(
        command(
            *("--address", fake.grpc, "--model", "m", "--name", "friday"),
            *("--profile", "constant", "--rate", "20", "--duration", "4"),
            *("--sidecar", f"http://{tap}"),
        ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        page = sidecar.wait(lambda p: bool(p.all("triton_run_info")), 30)
        (labels, value) = page.all("triton_run_info")[0]
        assert value == 1
        assert labels["run"].startswith("friday-")
        assert (labels["kind"], labels["profile"]) == ("load", "constant")
        out, err = run.communicate(timeout=patience(60))
    finally:
        run.kill()
        run.wait()
    # A busy machine may make it invalid.
    assert (run.returncode in (0, 3), err) == (True, ""), out
    sidecar.wait(lambda p: not p.all("triton_run_info"), 10)


def watched(sidecar, arguments) -> tuple[set[tuple[str, ...]], int, str]:
    """Return the sidecar's page of an active run; exit status and errors."""
    seen: set[tuple[str, ...]] = set()
    run = subprocess.Popen(
        arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        while run.poll() is None:
            for labels, _ in sidecar.page().all("triton_run_info"):
                seen.add(tuple(labels[n] for n in ("run", "kind", "profile", "phase")))
            time.sleep(0.1)
        err = run.stderr.read()
    finally:
        run.kill()
        run.wait()
        run.stderr.close()
    sidecar.wait(lambda p: not p.all("triton_run_info"), 10)
    return seen, run.returncode, err


@pytest.mark.slow
def test_a_capacity_search_is_seen_while_it_searches(
    start_sidecar, settings, fake
) -> None:
    fake.on("infer").reply(Slow(0.05))  # so that the ramp has runs to make
    sidecar = start_sidecar(watching_runs(settings(fake)))
    seen, status, err = watched(
        sidecar,
        [
            *(COMMAND, "load", "capacity", "--quiet"),
            *("--address", fake.grpc, "--model", "m", "--slo", "p90<20s,errors<50%"),
            *("--budget", "4", "--run-seconds", "1", "--repetitions", "3"),
            *("--max-rate", "50"),
            *("--sidecar", f"http://{tap_of(sidecar)}"),
        ],
    )
    # Every rate offered holds it: a finding. A busy machine may make it invalid.
    assert (status in (1, 3), err) == (True, "")
    runs = {labels[0] for labels in seen}
    assert len(runs) == 1
    assert {labels[1:3] for labels in seen} == {("capacity", "poisson")}
    assert {"reference", "ramp", "search"} <= {labels[3] for labels in seen}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "profile", "phases"),
    [
        (("efficiency", "--level-seconds", "0.5"), "specpower", {"calibration"}),
        (("pair", "--model", "n", "--pairs", "5"), "pair", {"pairs"}),
    ],
    ids=["efficiency", "pair"],
)
def test_energy_runs_are_seen_while_they_run(
    start_sidecar, settings, command, profile, phases
) -> None:
    with FakeTriton([FakeModel("m"), FakeModel("n")]) as fake:
        sidecar = start_sidecar(watching_runs(settings(fake)))
        name, *options = command
        seen, status, err = watched(
            sidecar,
            [
                *(COMMAND, "load", name, "--address", fake.grpc, "--model", "m"),
                *(*options, "--idle-watts", "20", "--full-watts", "60"),
                *("--sidecar", f"http://{tap_of(sidecar)}"),
            ],
        )
    assert status in (0, 3), err
    assert {labels[1:3] for labels in seen} == {("load", profile)}
    told = {labels[3] for labels in seen}
    assert phases <= told
    if profile == "specpower":
        # Half a second each: most of the ten levels and idle are caught.
        assert len(told & {f"{percent} %" for percent in range(10, 101, 10)}) >= 5


def test_a_search_that_finds_nobody_is_over_for_those_who_were_told(
    unused_port, receiver
) -> None:
    done = tritonwatch(
        *("load", "capacity", "--quiet", "--model", "m"),
        *("--address", f"127.0.0.1:{unused_port}", "--slo", "p90<20s"),
        *("--sidecar", receiver.url),
    )
    assert done.returncode == 1
    *_, (path, _, body) = receiver.received
    assert path == "/v1/runs"
    assert json.loads(body)["ended"] is True


def watching_runs(config):
    config["listen"]["tap"] = {"address": "127.0.0.1", "port": 0}
    config["collectors"].append({"kind": "runs", "interval_seconds": 0.2})
    config["probes"] = []
    return config


def tap_of(sidecar) -> str:
    found = re.search(r"event=tap_listening .*address=(\S+)", sidecar.log)
    assert found, sidecar.log
    return found[1]


def test_an_invalid_search_changes_no_capacity_that_the_sidecar_publishes(
    start_sidecar, settings, fake, tmp_path
) -> None:
    config = watching_runs(settings(fake))
    config["collectors"][-1]["capacity_reports"] = [valid_report(tmp_path)]
    sidecar = start_sidecar(config)
    search = ["load", "capacity", "--quiet", "--address", fake.grpc]
    search += ["--model", "m", "--slo", "p99<250ms", "--max-rate", "40"]
    search += ["--budget", "8", "--run-seconds", "1.5", "--repetitions", "3"]
    # The sidecar alone is more than that: every run is disturbed.
    search += ["--other-cpu", "0.000001", "--sidecar", f"http://{tap_of(sidecar)}"]
    done = tritonwatch(*search, timeout=120)
    assert "INVALID: " in done.stdout, done.stdout + done.stderr
    page = sidecar.wait(
        lambda p: p.label("triton_capacity_search_info", "verdict") == {"invalid"}, 30
    )
    assert page.label("triton_capacity_search_info", "reason") != {""}
    assert page.values("triton_capacity_requests_per_second", bound="estimate") == [180]
    assert page.values("triton_capacity_found_timestamp_seconds") == [1_000_060]


def valid_report(folder: Path) -> str:
    """A valid capacity of the same model and objective, found earlier."""
    ends = {"estimate": 180.0, "low": 170.0, "high": 190.0}
    report = {
        "format": "tritonwatch-load-capacity",
        "model": "m",
        "slo": "p99<250ms",
        "valid": True,
        "ending": "precise",
        "conclusion": "meets p99<250ms up to 180 requests/s",
        "capacity": {"requests_per_second": ends},
        "started_at": 1_000_000.0,
        "spent_seconds": 60.0,
    }
    file = folder / "capacity.json"
    file.write_text(json.dumps(report), "utf-8")
    return str(file)
