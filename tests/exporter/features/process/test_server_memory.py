"""Whose memory is the server's and whose is a model's; the rest is on the real Triton."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from exporter import catalogue
from exporter.features.process.process_collector import ServerMemory, model_of
from exporter.system import processes
from exporter.system.local_server import SERVER

STUB = "/opt/tritonserver/backends/python/triton_python_backend_stub"


def arguments(folder: str, instance: str) -> list[str]:
    region = "triton_python_backend_shm_region_5c422948-df89-4f06-9f8f-a805affca298"
    path = f"/models/{folder}/1/model.py"
    backends = "/opt/tritonserver/backends/python"
    numbers = ["1048576", "1048576", "31597"]
    return [STUB, path, region, *numbers, backends, "336", instance, "DEFAULT"]


@pytest.mark.parametrize(
    ("folder", "instance", "models", "expected"),
    [
        ("double", "double_0", {"double", "sleepy"}, "double"),
        ("double", "double_0_1", {"double"}, "double"),
        ("a", "a_0_0", {"a", "a_0"}, "a"),
        ("a_0", "a_0_0", {"a", "a_0"}, "a_0"),
        ("a", "a_0_0", {"a_0"}, None),  # `a` is not among the models that are watched
        ("folderX1y2", "double_0", {"double"}, "double"),  # a copy from cloud storage
        ("folderX1y2", "a_0_0", {"a", "a_0"}, None),
        ("double", "double_0", set(), None),
        ("double", "DEFAULT", {"double"}, None),
    ],
)
def test_the_model_of_a_backend_process(folder, instance, models, expected) -> None:
    assert model_of(arguments(folder, instance), models) == expected


def test_another_program_is_no_models(tmp_path) -> None:
    line = arguments("double", "double_0")
    assert model_of(["/usr/bin/python3", *line[1:]], {"double"}) is None
    assert model_of([], {"double"}) is None
    assert model_of([STUB], {"double"}) is None


LISTENS = """
import os, socket, subprocess, sys, time
server = socket.create_server(('127.0.0.1', int(sys.argv[1])), reuse_port=True)
"""
WAITS = "print('ready', flush=True); time.sleep(600)"


@pytest.fixture
def port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture
def start(tmp_path):
    """Start a program of a given name that listens on a port."""
    running = []

    def listening(name: str, port: int, then: str = "") -> subprocess.Popen[str]:
        program = tmp_path / name
        if not program.exists():
            shutil.copy(Path(sys.executable).resolve(), program)
        process = subprocess.Popen(
            [program, "-c", LISTENS + then + WAITS, str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONHOME": sys.base_prefix},
        )
        running.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield listening
    for process in running:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def shown(memory: ServerMemory) -> dict[tuple[str, ...], float]:
    samples = list(memory.samples({"double"}))
    assert all(s.spec is catalogue.SERVER_RESIDENT for s in samples)
    return {sample.labels: sample.value for sample in samples}


def test_only_a_tritonserver_that_alone_listens_on_the_port_is_the_server(
    start, port
) -> None:
    now = 0.0
    memory = ServerMemory(f"127.0.0.1:{port}", lambda: now)
    assert shown(memory) == {}
    start("envoy", port)  # a proxy, or a forwarded port
    now += 10
    assert shown(memory) == {}
    server = start(SERVER, port)
    now += 10
    assert shown(memory) == {
        ("server", ""): pytest.approx(processes.resident_bytes(server.pid), rel=0.2)
    }
    server.kill()
    server.wait()
    assert shown(memory) == {}  # at once, not at the next scan


def test_a_process_counts_once_it_has_become_what_it_is(start, port, tmp_path) -> None:
    script = tmp_path / "double/1/model.py"
    script.parent.mkdir(parents=True)
    script.write_text("print('stub', flush=True); import time; time.sleep(600)")
    line = [STUB, str(script), *arguments("double", "double_0")[2:]]
    copy = f"""
if os.fork() == 0:
    sys.stdin.readline()
    os.execv({sys.executable!r}, {line!r})
"""
    server = start(SERVER, port, copy)
    memory = ServerMemory(f"127.0.0.1:{port}", lambda: 0.0)
    assert set(shown(memory)) == {("server", "")}
    server.stdin.write("go\n")
    server.stdin.flush()
    assert server.stdout.readline() == "stub\n"
    assert set(shown(memory)) == {("server", ""), ("backend", "double")}
    [child] = processes.family_of([server.pid]) - {server.pid}
    os.kill(child, signal.SIGKILL)


def test_a_helper_of_the_server_is_other(start, port) -> None:
    server = start(SERVER, port, "subprocess.Popen(['/bin/sleep', '600'])\n")
    memory = ServerMemory(f"127.0.0.1:{port}", lambda: 0.0)
    assert set(shown(memory)) == {("server", "")}
    assert set(shown(memory)) == {("server", ""), ("other", "")}
    [child] = processes.family_of([server.pid]) - {server.pid}
    os.kill(child, signal.SIGKILL)


def test_two_servers_on_one_port_are_in_doubt(start, port) -> None:
    start(SERVER, port)
    start(SERVER, port)
    assert shown(ServerMemory(f"localhost:{port}", lambda: 0.0)) == {}


@pytest.mark.parametrize("host", ["10.0.0.7", "triton", "[2001:db8::1]"])
def test_a_server_elsewhere_has_no_memory_here(start, port, host) -> None:
    start(SERVER, port)
    assert shown(ServerMemory(f"{host}:{port}", lambda: 0.0)) == {}
