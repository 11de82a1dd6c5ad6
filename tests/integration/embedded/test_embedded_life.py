"""The embedded Triton while it runs: beside others, restarted, frozen, loading models."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from embedded_servers import alive, ask, scaling

pytestmark = pytest.mark.triton


def test_only_loopback_is_listened_on(start_triton, tmp_path) -> None:
    server = start_triton(scaling(tmp_path / "models"))
    listening = {}
    for table in ("tcp", "tcp6"):
        lines = Path(f"/proc/{server.pid}/net/{table}").read_text().splitlines()[1:]
        for address, _, state in (line.split()[1:4] for line in lines):
            if state == "0A":
                host, port = address.split(":")
                listening.setdefault(int(port, 16), set()).add(host)
    for port in (server.ports.grpc, server.ports.http, server.ports.metrics):
        # 127.0.0.1, or the same as an IPv6 address.
        assert listening[port] <= {"0100007F", "0000000000000000FFFF00000100007F"}


def test_a_restart_keeps_the_ports_and_the_log(start_triton, tmp_path) -> None:
    server = start_triton(scaling(tmp_path / "models"))
    pid, ports = server.pid, server.ports
    server.restart()
    assert server.ports == ports
    assert server.pid != pid
    assert not alive(pid)
    assert ask(server) == [2.0, 4.0, 8.0]
    server.kill()
    server.start()
    assert server.ports == ports
    assert ask(server) == [2.0, 4.0, 8.0]
    assert server.log.read_text().count("Started HTTPService") == 3


def test_a_frozen_server_answers_again_after_the_thaw(start_triton, tmp_path) -> None:
    server = start_triton(scaling(tmp_path / "models"))
    ask(server)
    server.freeze()
    with pytest.raises(TimeoutError):
        ask(server, timeout=0.3)
    assert server.running
    server.thaw()
    assert ask(server) == [2.0, 4.0, 8.0]


def test_a_server_outlives_the_thread_that_started_it(start_triton, tmp_path) -> None:
    started = []
    thread = threading.Thread(
        target=lambda: started.append(start_triton(scaling(tmp_path / "models")))
    )
    thread.start()
    thread.join()
    assert ask(started[0]) == [2.0, 4.0, 8.0]
    time.sleep(0.5)
    assert started[0].running
