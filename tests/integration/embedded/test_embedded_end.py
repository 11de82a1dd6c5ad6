"""The embedded Triton leaves nothing behind, however it or its owner ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from embedded_servers import alive, left, scaling, shared_memory
from waiting import patience, wait_until

from exporter.triton.embedded import EmbeddedTriton

pytestmark = pytest.mark.triton


def test_stop_leaves_nothing_and_says_how_it_ended(start_triton, tmp_path) -> None:
    server = start_triton(scaling(tmp_path / "models"))
    token, pids = server._folder.name, [server.pid, *server.stub_pids()]
    assert shared_memory(token)
    assert server.stop() == 0
    assert not any(map(alive, pids))
    assert not shared_memory(token)
    assert not server.running
    assert server.stop() == 0


def test_kill_leaves_nothing(start_triton, tmp_path) -> None:
    server = start_triton(scaling(tmp_path / "models"))
    token, pids = server._folder.name, [server.pid, *server.stub_pids()]
    server.freeze()
    assert server.kill() == 128 + signal.SIGKILL
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert not shared_memory(token)


def test_a_server_that_dies_by_itself_takes_its_stubs_along(
    start_triton, tmp_path
) -> None:
    server = start_triton(scaling(tmp_path / "models"))
    token, pids = server._folder.name, [server.pid, *server.stub_pids()]
    os.kill(server.pid, signal.SIGSEGV)
    wait_until(lambda: not server.running)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert not shared_memory(token)
    assert server.stop() == 128 + signal.SIGSEGV


def test_an_exception_in_the_block_ends_the_server(
    triton_environment, tmp_path
) -> None:
    server = EmbeddedTriton(
        scaling(tmp_path / "models"), environment=triton_environment
    )

    def divide_by_zero():
        with server:
            assert left(server._folder)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        divide_by_zero()
    assert not left(server._folder)
    # Something went wrong: the log stays for whoever looks into it.
    assert "Started HTTPService" in server.log.read_text()
    server.log.unlink()


def test_the_log_of_a_server_that_died_stays(triton_environment, tmp_path) -> None:
    repository = scaling(tmp_path / "models")
    with EmbeddedTriton(repository, environment=triton_environment) as server:
        os.kill(server.pid, signal.SIGKILL)
        wait_until(lambda: not server.running)
    assert "Started HTTPService" in server.log.read_text()
    server.log.unlink()


class Owner:
    """A Python process that holds a server, to be ended from outside."""

    def __init__(self, environment, folder, body):
        self.log = folder / "triton.log"
        repository = scaling(folder / "models")
        source = textwrap.dedent(body).format(
            environment=environment, repository=repository, log=self.log
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", source], stdout=subprocess.PIPE, text=True
        )
        line = self.process.stdout.readline().split()
        self.folder = Path(line[0])
        self.pids = [int(pid) for pid in line[1:]]

    def end(self, number):
        self.process.send_signal(number)
        code = self.process.wait(patience(20))
        self.process.stdout.close()
        return code

    def left(self):
        return left(self.folder) + [pid for pid in self.pids if alive(pid)]


HOLDING = """
    import contextlib, signal, time
    from pathlib import Path
    from exporter.system.termination import exit_on_signals
    from exporter.triton.embedded import EmbeddedTriton

    # What runs the tests in the background may have them ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    with {handler}, EmbeddedTriton(
        Path("{{repository}}"), environment=Path("{{environment}}"), log=Path("{{log}}")
    ) as server:
        print(server._folder, server.pid, *server.stub_pids(), flush=True)
        {freeze}
        time.sleep(60)
    """
PLAIN, HANDLED = "contextlib.nullcontext()", "exit_on_signals()"


@pytest.mark.parametrize(
    ("number", "handler", "freeze", "code", "gentle"),
    [
        pytest.param(signal.SIGTERM, HANDLED, "", 143, True, id="SIGTERM-handled"),
        pytest.param(signal.SIGTERM, PLAIN, "", -15, False, id="SIGTERM"),
        pytest.param(signal.SIGINT, PLAIN, "", -2, True, id="SIGINT"),
        pytest.param(signal.SIGKILL, PLAIN, "", -9, False, id="SIGKILL"),
        pytest.param(
            signal.SIGKILL, PLAIN, "server.freeze()", -9, False, id="SIGKILL-frozen"
        ),
    ],
)
def test_a_signal_to_the_owner_leaves_nothing(
    triton_environment, tmp_path, number, handler, freeze, code, gentle
) -> None:
    body = HOLDING.format(handler=handler, freeze=freeze)
    owner = Owner(triton_environment, tmp_path, body)
    assert len(owner.pids) == 2
    assert owner.left()
    assert owner.end(number) == code
    wait_until(lambda: not owner.left(), owner.left)
    # Gentle: the server was asked, and unloaded its models.
    assert ("successfully unloaded" in owner.log.read_text()) == gentle


def test_an_owner_killed_during_the_start_leaves_nothing(
    triton_environment, tmp_path
) -> None:
    body = """
        import threading, time
        from pathlib import Path
        from exporter.triton.embedded import EmbeddedTriton

        server = EmbeddedTriton(
            Path("{repository}"), environment=Path("{environment}"), log=Path("{log}")
        )
        threading.Thread(target=server.__enter__, daemon=True).start()
        while not server.pid:
            time.sleep(0.0001)
        print(server._folder, server.pid, flush=True)
        time.sleep(60)
        """
    owner = Owner(triton_environment, tmp_path, body)
    assert owner.end(signal.SIGKILL) == -signal.SIGKILL
    wait_until(lambda: not owner.left(), owner.left)
    assert "Started HTTPService" not in owner.log.read_text()
