"""`tritonwatch serve`: what the command line says in place of the file."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from sidecars import SidecarProcess
from waiting import wait_until

from exporter import cli

NOWHERE = {"target": {"grpc": "127.0.0.1:1", "http": None, "metrics": None}}


@pytest.fixture
def start(tmp_path):
    started = []

    def run(*arguments, **settings):
        started.append(SidecarProcess(NOWHERE | settings, tmp_path / "s", *arguments))
        started[-1].wait_listening()
        return started[-1]

    yield run
    for sidecar in started:
        sidecar.close()


def test_it_listens_on_every_address_that_is_given_and_not_on_the_files(start):
    sidecar = start(
        "--web.listen-address=127.0.0.1:0",
        "--web.listen-address=[::1]:0",
        listen={"port": 1},
    )
    listening = re.compile(r"event=serving address=(\S+):(\d+) ")
    wait_until(lambda: len(listening.findall(sidecar.log)) == 2, lambda: sidecar.log)
    for host, port in listening.findall(sidecar.log):
        with urllib.request.urlopen(f"http://{host}:{port}/-/healthy") as answer:
            assert answer.status == 200


def test_the_path_of_the_metrics_can_be_chosen(start):
    sidecar = start(
        "--web.listen-address=127.0.0.1:0", "--web.telemetry-path=/tritonwatch"
    )
    assert "triton_probe_interval_seconds" in sidecar.get("/tritonwatch").text
    assert sidecar.get("/metrics").status == 404


def test_what_is_said_of_the_log_counts_after_a_reload_too(start):
    sidecar = start(
        "--web.listen-address=127.0.0.1:0",
        "--log.level=info",
        log={"level": "error", "format": "logfmt"},
    )
    sidecar.write(NOWHERE | {"log": {"level": "error"}})
    sidecar.process.send_signal(1)
    wait_until(lambda: "event=reloaded" in sidecar.log, lambda: sidecar.log)


@pytest.mark.parametrize("is_kept", [False, True])
def test_the_log_reports_once_that_a_restart_loses_requests(start, tmp_path, is_kept):
    kept = {"state_file": str(tmp_path / "statistics.json")} if is_kept else {}
    settings = {"collectors": [{"kind": "statistics"} | kept]}
    sidecar = start("--web.listen-address=127.0.0.1:0", **settings)
    sidecar.process.send_signal(1)
    wait_until(lambda: "event=reloaded" in sidecar.log, lambda: sidecar.log)
    lines = [line for line in sidecar.log.splitlines() if "state_file" in line]
    assert ["event=restarts_lose_requests" in line for line in lines] == [True] * (
        not is_kept
    )


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ("--web.listen-address=8003", "want [HOST]:PORT"),
        ("--web.listen-address=[x]:8003", 'want an address like "::1"'),
        ("--web.telemetry-path=metrics", "want a path that begins with /"),
        ("--log.level=loud", "invalid choice"),
    ],
)
def test_wrong_options_are_named(capsys, option, problem):
    with pytest.raises(SystemExit):
        cli.main(["serve", option])
    assert problem in capsys.readouterr().err


def test_without_a_command_the_help_is_printed(capsys):
    assert cli.main([]) == cli.EXIT_USAGE
    assert "serve" in capsys.readouterr().err


def test_a_folder_that_hides_a_package_of_commands_stops_no_other_command(tmp_path):
    (tmp_path / "loadtests").mkdir()
    (tmp_path / "loadtests/__init__.py").touch()

    program = "from exporter.cli import main; raise SystemExit(main())"

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-c", program, *arguments],
            cwd=tmp_path,
            env={"PYTHONPATH": f"{tmp_path}:{Path.cwd()}"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    assert run("--version").stdout.startswith("tritonwatch ")
    assert run("metrics").returncode == 0
    assert "not here" in run("--help").stdout
    broken = run("load", "run", "--help")
    assert broken.returncode == cli.EXIT_USAGE
    assert "loadtests.cli:add cannot be imported" in broken.stderr
