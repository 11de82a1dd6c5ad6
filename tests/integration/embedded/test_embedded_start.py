"""An embedded Triton that cannot start says why."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from embedded_servers import SCALE, SCALE_CONFIG, ask, left, scaling, write_model

from exporter.errors import EmbeddedTritonError
from exporter.triton import backend
from exporter.triton.embedded import EmbeddedTriton, Ports

pytestmark = pytest.mark.triton


def test_a_missing_environment_says_what_makes_it(tmp_path) -> None:
    with pytest.raises(EmbeddedTritonError, match=r"no \.triton in .*make demo"):
        backend.find(tmp_path)
    with pytest.raises(EmbeddedTritonError, match=r"no usable Python .*make demo"):
        EmbeddedTriton(tmp_path, environment=tmp_path / "missing")


def test_an_environment_without_the_wheel_says_so(tmp_path) -> None:
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True
    )
    with pytest.raises(EmbeddedTritonError, match="make demo"):
        EmbeddedTriton(tmp_path, environment=tmp_path / "bare")


def test_a_missing_libpython_names_the_package(triton_environment, tmp_path) -> None:
    # Debian's python3 comes without the shared library that the stub is linked to.
    known = backend.inspect(triton_environment)
    facts = {
        "version": "3.11",
        "numpy": known.numpy,
        "site": str(known.site),
        "folders": [str(tmp_path)],
    }
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f"#!/bin/sh\necho '{json.dumps(facts)}'\n")
    python.chmod(0o755)
    with pytest.raises(EmbeddedTritonError, match=r"apt-get install libpython3\.11$"):
        backend.inspect(tmp_path)


@pytest.fixture
def own_triton(triton_environment, tmp_path):
    """A folder as a container has it at /opt/tritonserver, made of the wheel."""
    wheel = backend.inspect(triton_environment)
    folder = tmp_path / "tritonserver"
    python = folder / "backends" / "python"
    python.mkdir(parents=True)
    for part in (wheel.triton / "backends" / "python").iterdir():
        (python / part.name).symlink_to(part)
    stub = wheel.triton / "python_backend_stubs" / wheel.python
    shutil.copy(stub / "triton_python_backend_stub", python)
    (folder / "bin").mkdir()
    # The process then shows which file was started.
    shutil.copy(wheel.triton / "bin" / "tritonserver", folder / "bin")
    (folder / "lib").symlink_to(wheel.site / "nvidia_pytriton.libs")
    # What is known of an environment does not follow the variable.
    backend.inspect.cache_clear()
    yield folder
    backend.inspect.cache_clear()


def test_make_test_triton_runs_the_server_of_the_given_folder(
    own_triton, start_triton, tmp_path, monkeypatch
) -> None:
    made = subprocess.run(
        ["make", "--dry-run", "test-triton", f"TRITON={own_triton}"],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    variable, given = re.search(
        r"^(TRITONWATCH_\w+)=(\S+) ", made, re.MULTILINE
    ).groups()
    monkeypatch.setenv(variable, given)
    server = start_triton(scaling(tmp_path / "models"))
    assert ask(server) == [2.0, 4.0, 8.0]
    running = Path(f"/proc/{server.pid}/exe").resolve()
    assert running == own_triton / "bin" / "tritonserver"


@pytest.mark.parametrize("absent", ["bin/tritonserver", "backends/python"])
def test_a_folder_without_a_server_names_what_is_absent(
    own_triton, absent, monkeypatch, triton_environment
) -> None:
    (own_triton / absent).rename(own_triton / "elsewhere")
    monkeypatch.setenv(backend.SERVER_VARIABLE, str(own_triton))
    with pytest.raises(EmbeddedTritonError, match=f"found no {absent}"):
        backend.inspect(triton_environment)


@pytest.mark.parametrize(
    ("config", "source", "reason"),
    [
        (SCALE_CONFIG, "import absent_module", "No module named 'absent_module'"),
        (SCALE_CONFIG + "colour: 3", SCALE, 'no field named "colour"'),
        (SCALE_CONFIG.replace("python", "onnxruntime"), SCALE, "onnxruntime"),
    ],
)
def test_a_broken_repository_is_reported_at_once_with_the_reason(
    start_triton, tmp_path, config, source, reason
) -> None:
    repository = write_model(tmp_path / "models", "scale", config, source)
    with pytest.raises(EmbeddedTritonError) as caught:
        # Longer than the test may take: it cannot have waited for this.
        start_triton(repository, ready_timeout_seconds=600)
    assert "ended with 1 while starting" in str(caught.value)
    assert reason in str(caught.value)
    assert str(tmp_path / "triton.log") in str(caught.value)
    assert "NVML" not in str(caught.value)


def test_a_server_that_is_not_ready_in_time_is_ended(
    triton_environment, tmp_path
) -> None:
    source = "import time\nprint('reading weights', flush=True)\ntime.sleep(60)\n"
    server = EmbeddedTriton(
        write_model(tmp_path / "models", "scale", SCALE_CONFIG, source),
        environment=triton_environment,
        log=tmp_path / "triton.log",
        ready_timeout_seconds=1.5,
    )
    with pytest.raises(EmbeddedTritonError, match=r"not ready after 1\.5 s") as error:
        server.__enter__()
    assert "reading weights" in str(error.value)
    assert not left(server._folder)


def test_a_fixed_port_that_is_taken_is_named(start_triton, tmp_path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EmbeddedTritonError, match=f"127.0.0.1:{port} is in use"):
            start_triton(tmp_path, ports=Ports(grpc=port, http=0, metrics=0))


@pytest.mark.parametrize("kind", ["grpc", "http", "metrics"])
def test_another_port_is_taken_when_one_is_lost_on_the_way(
    triton_environment, tmp_path, kind
) -> None:
    lost = []

    class Unlucky(EmbeddedTriton):
        def _launch(self):
            if not lost:
                port = getattr(self.ports, kind)
                lost.append(socket.create_server(("127.0.0.1", port)))
            super()._launch()

    repository = scaling(tmp_path / "models")
    with Unlucky(repository, environment=triton_environment) as server:
        assert ask(server) == [2.0, 4.0, 8.0]
        assert getattr(server.ports, kind) != lost[0].getsockname()[1]
        server.kill()
    lost[0].close()


def test_a_server_that_aborts_on_a_lock_of_its_backend_is_started_again(
    start_triton, tmp_path
) -> None:
    # On a busy machine the backend throws this itself, and it ends the server so.
    source = SCALE.format(factor=2).replace(
        "class TritonPythonModel:",
        f"""import os, signal


class TritonPythonModel:
    def initialize(self, args):
        starts = open({str(tmp_path / "starts")!r}, "a+")
        starts.write("x")
        if starts.tell() < 3:
            starts.flush()
            os.write(2, b"what(): boost::interprocess::lock_exception\\n")
            os.kill(os.getppid(), signal.SIGABRT)
            signal.pause()
""",
    )
    server = start_triton(
        write_model(tmp_path / "models", "scale", SCALE_CONFIG, source)
    )
    assert ask(server) == [2.0, 4.0, 8.0]
    assert "boost::interprocess::lock_exception" in server.log.read_text()
    assert (tmp_path / "starts").read_text() == "xxx"
