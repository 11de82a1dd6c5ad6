"""The command: exit codes, signals, and a bad file that never stops a running sidecar."""

from __future__ import annotations

import signal
import socket
import subprocess

import pytest
import yaml
from commands import COMMAND, tritonwatch
from waiting import patience, wait_until


@pytest.mark.parametrize(
    "arguments",
    [(), ("serve", "--confg", "x"), ("check",)],
)
def test_wrong_usage_exits_2_and_says_what_is_there(arguments) -> None:
    result = tritonwatch(*arguments)
    assert result.returncode == 2
    assert "usage: tritonwatch" in result.stderr


def test_serve_with_a_bad_file_exits_2_and_says_why(tmp_path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("modells: {}\n")
    result = tritonwatch("serve", "--config", str(file))
    assert result.returncode == 2
    assert str(file) in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("listen", ["port: {}", "port: 0, tap: {{port: {}}}"])
def test_a_port_in_use_is_a_clear_line_and_exit_2(listen, tmp_path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        file = tmp_path / "c.yaml"
        file.write_text(
            f"listen: {{address: 127.0.0.1, {listen.format(port)}}}\n"
            "collectors: [{kind: traces}]\n"
        )
        result = tritonwatch("serve", "--config", str(file))
    assert result.returncode == 2
    *_, line = result.stderr.splitlines()
    assert f"127.0.0.1:{port}" in line
    assert "in use" in line
    assert "Traceback" not in result.stderr


def test_the_demo_names_a_way_out_when_its_port_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = tritonwatch("demo", "--port", str(port))
    assert result.returncode == 2
    assert 'make demo ARGS="--port 0"' in result.stderr


@pytest.mark.parametrize("seconds", ["0", "nan"])
def test_the_demo_takes_no_duration_that_is_none(seconds) -> None:
    result = tritonwatch("demo", "--duration", seconds)
    assert result.returncode == 2
    assert "want a positive number of seconds" in result.stderr


def test_a_reader_that_goes_away_is_no_error() -> None:
    with subprocess.Popen(
        [COMMAND, "schema"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(patience(20)) == 0


@pytest.mark.parametrize(
    ("number", "ignored"),
    [(signal.SIGTERM, False), (signal.SIGINT, False), (signal.SIGINT, True)],
)
def test_a_signal_ends_it_well_without_a_server_too(
    number, ignored, settings, start_sidecar, unused_port
) -> None:
    class Nobody:
        grpc = http = metrics = f"127.0.0.1:{unused_port}"

    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if ignored else None
    try:
        sidecar = start_sidecar(settings(Nobody))
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)
    sidecar.wait(lambda page: page.value("triton_up") == 0)
    sidecar.process.send_signal(number)
    assert sidecar.process.wait(patience(5)) == 0
    assert "Traceback" not in sidecar.log


@pytest.mark.triton
def test_a_reload_takes_a_good_file_and_survives_a_bad_one(
    playground, settings, start_sidecar
) -> None:
    config = settings(playground)
    sidecar = start_sidecar(config)
    sidecar.wait(lambda p: len(p.all("triton_model_serving")) == 2)
    before = sidecar.page()

    sidecar.file.write_text("probes: [{kind: synthetic, intervall_seconds: 1}]\n")
    sidecar.process.send_signal(signal.SIGHUP)
    name = "tritonwatch_config_last_reload_successful"
    sidecar.wait(lambda p: p.value(name) == 0)
    assert "event=reload_failed" in sidecar.log
    assert "intervall_seconds" in sidecar.log
    complete = yaml.safe_dump(config)
    sidecar.file.write_text(complete[: len(complete) // 2].rstrip())
    sidecar.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "cut off" in sidecar.log)
    assert len(sidecar.page().all("triton_model_serving")) == 2

    sidecar.write({**config, "models": {"include": ["double"]}})
    sidecar.process.send_signal(signal.SIGHUP)
    sidecar.wait(lambda p: p.value(name) == 1)
    sidecar.wait(lambda p: p.label("triton_model_serving", "model") == {"double"})
    stamp = "tritonwatch_config_last_reload_success_timestamp_seconds"
    assert sidecar.page().value(stamp) > before.value(stamp)
