"""Whoever of the package comes first, gRPC's core is loaded so that callers read their sockets."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

EXPERIMENTS = "GRPC_EXPERIMENTS"
POLLER = "GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS"
FIRST = (
    "exporter.app",
    "exporter.taps.tap_grpc",
    "exporter.triton.grpc",
    "exporter.triton.kserve",
    "loadtests.distributed.sender",
    "loadtests.execute",
)
# Each module is imported by a fork of its own: the rest of a process is there already.
IMPORTING = f"""
import json, os, sys

def told():
    return [os.environ.get(name) for name in ("{EXPERIMENTS}", "{POLLER}")]

class Watcher:
    "Finds nothing; notes what stands in the environment when gRPC is asked for."

    def find_spec(self, name, path=None, target=None):
        if name in ("grpc", "grpc._cython.cygrpc"):
            seen[name] = told()

seen = {{}}
sys.meta_path.insert(0, Watcher())
for module in sys.argv[1:]:
    if os.fork() == 0:
        __import__(module)
        # In one piece, whoever else writes.
        os.write(1, (json.dumps([module, seen, told()]) + os.linesep).encode())
        os._exit(0)
for _ in sys.argv[1:]:
    os.wait()
"""
CONNECTING = """
import os, socket

socket.setdefaulttimeout(20)
server = socket.create_server(("127.0.0.1", 0))
channel = grpc.insecure_channel("127.0.0.1:%d" % server.getsockname()[1])
channel.subscribe(print, try_to_connect=True)
server.accept()[0].recv(1)  # by then it has told of its connection
os._exit(0)  # grpcio may wait for ever for the thread of a subscription
"""


def python(*arguments: str, **given: str) -> subprocess.CompletedProcess[str]:
    """Run a program with these variables, and none of ours from elsewhere."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GRPC_")}
    return subprocess.run(
        [sys.executable, "-c", *arguments],
        env=environment | given,
        capture_output=True,
        text=True,
        check=True,
        timeout=50,
    )


def imported(*modules: str, **given: str) -> dict[str, tuple[object, object]]:
    """By module: what both variables were when gRPC was asked for, and are afterwards."""
    found: dict[str, tuple[object, object]] = {}
    for line in python(IMPORTING, *modules, **given).stdout.splitlines():
        module, seen, afterwards = json.loads(line)
        assert seen["grpc"] == seen["grpc._cython.cygrpc"], module
        found[module] = seen["grpc"], afterwards
    return found


def test_the_core_is_told_so_whoever_imports_it_first() -> None:
    wanted = ["-event_engine_client", "100"], [None, None]
    assert imported(*FIRST) == dict.fromkeys(FIRST, wanted)


@pytest.mark.parametrize("given", ["tcp_frame_size_tuning", ""])
def test_experiments_of_the_user_stay_as_they_are(given: str) -> None:
    kept = [given, None]
    found = imported("exporter.triton.grpc", **{EXPERIMENTS: given})
    assert found == {"exporter.triton.grpc": (kept, kept)}


def test_the_users_pace_of_polling_stays_as_it_is() -> None:
    found = imported("exporter.triton.grpc", **{POLLER: "7"})
    told = ["-event_engine_client", "7"], [None, "7"]
    assert found == {"exporter.triton.grpc": told}


@pytest.mark.parametrize(
    ("statement", "by_engine"),
    [("import grpc", True), ("from exporter.network.grpc_core import grpc", False)],
)
def test_the_core_does_as_it_is_told(statement: str, *, by_engine: bool) -> None:
    """As it says itself of its connection; an other grpcio may say it in other words."""
    tracing = {"GRPC_TRACE": "event_engine,tcp", "GRPC_VERBOSITY": "DEBUG"}
    said = python(statement + CONNECTING, **tracing).stderr
    assert ("EventEngine::Connect" in said) is by_engine
    assert ("CLIENT_CONNECT" in said) is not by_engine
