"""A target in a container: its processes are found, and what is missing is told."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import TypeAdapter
from receiver import Receiver
from requirements import require
from sites import empty_site
from waiting import patience, wait_until

from loadtests.chaos import experiment
from loadtests.chaos.measuring.observations import PROMETHEUS_UP, Record
from loadtests.chaos.measuring.polling import AlertWatch
from loadtests.chaos.primitives.process_refs import new_token
from loadtests.chaos.running.repetition import RunOptions, run
from loadtests.chaos.targets.chaos_target import (
    AnyTarget,
    ProcessTarget,
    Surroundings,
)
from loadtests.chaos.targets.companions import companions
from loadtests.errors import LoadError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

TARGETS: TypeAdapter[Any] = TypeAdapter(AnyTarget)
# A server and a stub of model "m" below a first process, as in a container. The names
# are the real ones', the programs are not.
_FIRST = """
import subprocess, sys
command = ["/opt/tritonserver/bin/tritonserver", sys.argv[1]]
server = subprocess.Popen(command, executable=sys.executable)
command = ["/b/triton_python_backend_stub", sys.argv[1], "region", "1", "1", str(server.pid), "/b"]
found = [server, subprocess.Popen(command, executable=sys.executable)]
print(*(child.pid for child in found), flush=True)
sys.stdin.read()
for child in found:
    child.kill()
    child.wait()
"""


class Container:
    """Processes as a container of this host has them."""

    def __init__(self, folder: Path) -> None:
        script = folder / "m" / "1" / "model.py"
        script.parent.mkdir(parents=True)
        script.write_text("import time; time.sleep(120)")
        self.process = subprocess.Popen(
            [sys.executable, "-c", _FIRST, str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.server, self.stub = map(int, self.process.stdout.readline().split())

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(patience(20))


@pytest.fixture
def container(tmp_path: Path) -> Generator[Container]:
    found = Container(tmp_path)
    yield found
    found.close()


@pytest.fixture
def runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, str], Path]:
    """A program on the path that answers as a container runtime does."""

    def make(name: str, answer: str) -> Path:
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        asked = tmp_path / "asked"
        program.write_text(f"#!/bin/sh\necho \"$@\" >> {asked}\necho '{answer}'\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        return asked

    return make


@pytest.mark.parametrize(
    ("name", "question"),
    [
        ("docker", "inspect --format {{.State.Pid}} triton\n"),
        ("podman", "inspect --format {{.State.Pid}} triton\n"),
        ("runc", "state triton\n"),
    ],
)
def test_a_containers_server_and_stubs_are_found(
    container: Container,
    runtime: Callable[[str, str], Path],
    name: str,
    question: str,
) -> None:
    pid = container.process.pid
    asked = runtime(name, json.dumps({"pid": pid}) if name == "runc" else str(pid))
    target = TARGETS.validate_python(
        {"kind": "container", "container": "triton", "runtime": name}
    )
    site = target.site()
    server = site.server()
    assert server is not None
    assert server.pid == container.server
    assert [stub.pid for stub in site.stubs()] == [container.stub]
    assert [stub.pid for stub in site.stubs("m")] == [container.stub]
    assert site.stubs("other") == []
    assert asked.read_text().startswith(question)


def test_a_container_that_has_ended_has_no_server(
    runtime: Callable[[str, str], Path], tmp_path: Path
) -> None:
    runtime("docker", "0")
    given = document({"kind": "container", "container": "triton"})
    loaded = experiment.parse(given, "test")
    options = RunOptions(allow=("container:triton",), state=tmp_path / "state")
    with pytest.raises(LoadError, match="found no tritonserver of container:triton"):
        run(loaded, options)
    assert list((tmp_path / "state").iterdir()) == []


def test_a_runtime_that_is_not_there_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    target = TARGETS.validate_python({"kind": "container", "container": "triton"})
    with pytest.raises(LoadError, match="found no program 'docker' to ask"):
        target.site().server()


def document(target: dict[str, Any], *method: dict[str, Any]) -> dict[str, Any]:
    return {
        "title": "Test",
        "description": "A test.",
        "method": list(method),
        "extensions": [{"name": "tritonwatch", "target": target}],
    }


@pytest.fixture
def listening():
    """A program of this host that listens on 127.0.0.3, called tritonserver or not."""
    with contextlib.ExitStack() as stack:

        def start(program, *arguments):
            code = (
                "import socket, sys; s = socket.create_server(('127.0.0.3', 0));"
                "print(s.getsockname()[1], flush=True); sys.stdin.read()"
            )
            process = stack.enter_context(
                subprocess.Popen(
                    [program, "-c", code, *arguments],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            stack.callback(process.kill)
            return int(process.stdout.readline()), process.pid

        yield start


@pytest.mark.parametrize("host", ["192.0.2.7", "127.0.0.1", "[::1]", "nowhere.invalid"])
def test_a_server_of_another_address_is_never_a_process_that_listens_here(
    listening, tmp_path, host
):
    program = tmp_path / "tritonserver"
    program.symlink_to(sys.executable)
    port, pid = listening(program)
    target = ProcessTarget(called="staging", http=f"{host}:{port}")
    assert target.site().server() is None
    here = ProcessTarget(called="here", http=f"127.0.0.3:{port}")
    assert here.site().server().pid == pid


def test_a_program_that_is_no_tritonserver_is_not_the_server(listening):
    port, _ = listening(sys.executable)
    target = ProcessTarget(called="proxied", http=f"127.0.0.3:{port}")
    assert target.site().server() is None


@pytest.mark.parametrize("named", [["/srv/tritonwatch"], ["serve", "tritonwatch"]])
def test_a_program_that_is_no_sidecar_is_not_the_sidecar(
    listening, named: list[str]
) -> None:
    port, _ = listening(sys.executable, *named)
    target = ProcessTarget(called="x", sidecar_url=f"http://127.0.0.3:{port}")
    assert target.site().sidecar() is None
    port, pid = listening(sys.executable, "/opt/bin/tritonwatch", "serve")
    target = ProcessTarget(called="x", sidecar_url=f"http://127.0.0.3:{port}/")
    assert target.site().sidecar().pid == pid


@pytest.mark.parametrize("url", ["https://h:8003", "h:8003", "http://h:8003/page"])
def test_a_sidecar_that_cannot_be_read_at_its_url_is_refused(url: str) -> None:
    assert ProcessTarget(called="x", sidecar_url="http://h:8003/").sidecar_url
    with pytest.raises(ValueError, match="want a URL without TLS or path"):
        ProcessTarget(called="x", sidecar_url=url)


def test_an_alert_that_no_rule_has_is_refused(tmp_path: Path) -> None:
    require("prometheus")
    site = empty_site()
    site.sidecar_url = "http://127.0.0.1:1"
    target = ProcessTarget(called="x")
    around = Surroundings(
        scratch=tmp_path,
        token=new_token(),
        note=lambda *_: None,
        seed=1,
        alerts=frozenset({"TritonDwon"}),
    )
    with (
        pytest.raises(LoadError, match=r"found no alert TritonDwon in .*slos\.yaml"),
        companions(target, site, around),
    ):
        pass


def test_alerts_of_a_prometheus_that_is_gone_are_not_watched() -> None:
    record = Record()
    page = Receiver(body=b'{"data": {"alerts": []}}')
    with AlertWatch(page.url, record):
        wait_until(lambda: record.alerts_watched)
        page.close()
        wait_until(lambda: not record.alerts_watched)
    seen = record.evidence({}, origin=None, load=None, ended=0.0, status="completed")
    (polls,) = seen.of_metric(PROMETHEUS_UP)
    assert {polls.values[0], polls.values[-1]} == {1.0, 0.0}
