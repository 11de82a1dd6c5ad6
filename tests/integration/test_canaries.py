"""A secret that is really used is in nothing that is shown, sent elsewhere or kept.

Each test first sees the canary arrive where it belongs, else it would prove nothing.
"""

from __future__ import annotations

import gzip
import json
import os
import signal
from typing import TYPE_CHECKING, Any

import bcrypt
import numpy as np
import pytest
import yaml
from commands import tritonwatch
from fake_triton import FakeModel, FakeTriton, Garbage
from receiver import Receiver

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path


CANARY = "canary-4711"
KEY = "triton-key"
PAGES = ("/", "/api/v1/status", "/metrics", "/probe?target={grpc}&debug=true")


@pytest.fixture
def fake():
    with FakeTriton([FakeModel("m"), FakeModel("n")]) as server:
        yield server


def arrived(fake) -> bool:
    return any(r.headers.get(KEY) == CANARY for r in fake.requests)


def plain(headers: dict[str, str], body: bytes) -> bytes:
    packed = headers.get("content-encoding") == "gzip"
    return gzip.decompress(body) if packed else body


def leaks(folder: Path) -> list[str]:
    """The files that hold the canary, compressed or not."""
    files = [f for f in folder.rglob("*") if f.is_file()]
    return [str(f) for f in files if CANARY.encode() in f.read_bytes()]


# The sidecar.


class TestTheSidecar:
    def config(self, fake, receiver, settings) -> dict[str, Any]:
        url = receiver.url.replace("://", f"://user:{CANARY}@")
        config = settings(
            fake,
            otlp={
                "endpoint": f"{url}/{CANARY}?token={CANARY}",
                "headers": {"API-Key": CANARY},
                "resource": {"deployment.environment": "test"},
                "interval_seconds": 0.2,
                "traces": True,
            },
            multi_target={"allow": [fake.grpc]},
            probe={"overrides": {"m": {"parameters": {"key": CANARY}}}},
            log={"level": "debug"},
        )
        config["target"]["headers"] = {KEY: CANARY}
        return config

    def test_tells_a_collector_nothing_but_what_it_measures(
        self, fake, receiver, settings, start_sidecar
    ) -> None:
        sidecar = start_sidecar(self.config(fake, receiver, settings))
        for kind in ("metrics", "traces"):
            sidecar.wait(
                lambda p, kind=kind: p.value(
                    "tritonwatch_otlp_exports_total", kind=kind, outcome="ok"
                ),
                20,
            )
        sidecar.end()
        got = list(receiver.received)
        assert all(headers["api-key"] == CANARY for _, headers, _ in got)
        assert {path.rpartition("/")[2].partition("?")[0] for path, _, _ in got}
        bodies = [plain(headers, body) for _, headers, body in got]
        assert any(b"deployment.environment" in body for body in bodies)
        assert not [body for body in bodies if CANARY.encode() in body]
        # A server that restricts its APIs wants the header on every one.
        asked = {
            (r.protocol, r.operation)
            for r in fake.requests
            if r.headers.get(KEY) == CANARY
        }
        assert {("grpc", "infer"), ("http", "infer"), ("grpc", "statistics")} <= asked

    def test_shows_it_nowhere_when_everything_goes_wrong(
        self, fake, receiver, settings, start_sidecar, tmp_path
    ) -> None:
        password = bcrypt.hashpw(CANARY.encode(), bcrypt.gensalt(4)).decode()
        web = tmp_path / "web.yaml"
        web.write_text(yaml.safe_dump({"basic_auth_users": {"u": password}}), "utf-8")
        config = self.config(fake, receiver, settings)
        sidecar = start_sidecar(config)
        guarded = start_sidecar(config, "--web.config.file", str(web))
        sidecar.wait(lambda p: p.value("triton_model_serving", model="m") == 1)
        assert arrived(fake)
        fake.on("any").reply(Garbage())
        sidecar.wait(lambda p: p.value("triton_model_serving", model="m") == 0)
        assert guarded.get("/", authorization=f"Basic {CANARY}").status == 401
        receiver.close()
        sidecar.wait(
            lambda p: p.value(
                "tritonwatch_otlp_exports_total", kind="metrics", outcome="failed"
            ),
            20,
        )
        # A file that is refused, with the secret in the very line that is wrong.
        sidecar.file.write_text(f'target: {{headers: {{x: "{CANARY}\\n"}}}}', "utf-8")
        sidecar.process.send_signal(signal.SIGHUP)
        sidecar.wait(
            lambda p: p.value("tritonwatch_config_last_reload_successful") == 0
        )
        for path in PAGES:
            assert CANARY not in sidecar.get(path.format(grpc=fake.grpc)).text, path
        events = json.loads(sidecar.get("/api/v1/status").text)["events"]
        assert {"reload_failed", "otlp_push_failed"} <= {e["event"] for e in events}
        for process in (sidecar, guarded):
            assert process.end()[0] == 0
            assert CANARY not in process.log
            assert password not in process.log


# The commands.


@pytest.fixture
def file(fake, tmp_path) -> Path:
    """A configuration whose header comes from the environment."""
    path = tmp_path / "tritonwatch.yaml"
    config = {
        "target": {
            **{name: getattr(fake, name) for name in ("grpc", "http", "metrics")},
            "headers": {KEY: "${env:CANARY}"},
        },
        "power": None,
        "slos": [{"kind": "availability", "name": "a", "objective_ratio": 0.9}],
    }
    path.write_text(yaml.safe_dump(config), "utf-8")
    x = np.ones((8, *FakeModel("m").inputs[0].shape[1:]), np.float32)
    np.savez(tmp_path / "samples.npz", **{FakeModel("m").inputs[0].name: x})
    return path


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return tritonwatch(*arguments, cwd=cwd, env={**os.environ, "CANARY": CANARY})


LOAD = ("--protocol", "grpc", "--header", f"{KEY}={CANARY}", "--model", "m")
CONFIG = ("--config", "tritonwatch.yaml")
GOLDEN = ("--model", "m", "--data", "samples.npz", *CONFIG)
# Each command that can hold the secret, and every kind of report it writes.
COMMANDS = {
    "audit": [
        ("audit", *CONFIG, "--duration", "1", "--format", kind)
        for kind in ("text", "json", "html")
    ],
    "compare": [
        (
            *("compare", *CONFIG, "--champion", "m", "--challenger", "n"),
            *("--duration", "2", "--json"),
        )
    ],
    "golden": [
        ("golden", "record", *GOLDEN, "--output", "golden.npz"),
        ("golden", "score", *GOLDEN),
    ],
    "load run and report": [
        (
            *("load", "run", "--quiet", *LOAD, "--concurrency", "1"),
            "--duration=1",
            "--json=r.json",
        ),
        ("load", "report", "r.json", "--html", "r.html", "--json", "report.json"),
    ],
    "load efficiency": [
        (
            *("load", "efficiency", *LOAD, "--maximum", "20", "--level-seconds", "1"),
            *("--idle-watts", "1", "--full-watts", "2"),
            *("--json", "e.json", "--html", "e.html"),
        )
    ],
    "rules and check": [("rules", *CONFIG), ("check", *CONFIG)],
}
ASK_NOTHING = {"rules and check"}
# Seconds of levels or of waiting for pairs that do not come.
LONG = {"compare", "load efficiency"}
NAMES = [
    pytest.param(name, marks=pytest.mark.slow if name in LONG else [])
    for name in COMMANDS
]


@pytest.mark.parametrize("name", NAMES)
def test_no_command_prints_or_writes_it(name, fake, file, tmp_path) -> None:
    for command in COMMANDS[name]:  # type: ignore[attr-defined]
        address = (
            ("--address", fake.grpc)
            if command[0] == "load" and command[1] != "report"
            else ()
        )
        done = run(*command, *address, cwd=tmp_path)
        # 1 and 3 are findings; 2 would mean that the command was never run.
        assert done.returncode != 2, done.stderr
        assert "Traceback" not in done.stderr
        assert CANARY not in done.stdout + done.stderr, command
    assert arrived(fake) or name in ASK_NOTHING
    assert leaks(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_no_command_tells_it_when_the_server_makes_no_sense(
    name, fake, file, tmp_path
) -> None:
    fake.on("any").reply(Garbage())
    for command in COMMANDS[name]:  # type: ignore[attr-defined]
        if command[:2] == ("load", "report"):
            continue
        address = ("--address", fake.grpc) if command[0] == "load" else ()
        done = run(*command, *address, cwd=tmp_path)
        assert "Traceback" not in done.stderr
        assert CANARY not in done.stdout + done.stderr, command
    assert arrived(fake) or name in ASK_NOTHING
    assert leaks(tmp_path) == []


class TestAnnouncements:
    @pytest.fixture
    def told(self, fake, tmp_path):
        def announce(place: str) -> subprocess.CompletedProcess[str]:
            inside = place.replace("http://", f"http://user:{CANARY}@")
            return run(
                *("load", "run", "--quiet", *LOAD, "--concurrency", "1"),
                *("--duration", "0.5"),
                *("--address", fake.grpc, "--json", "run.json"),
                *("--sidecar", inside),
                cwd=tmp_path,
            )

        return announce

    def test_hold_no_secret_of_the_run(self, told, receiver, tmp_path) -> None:
        done = told(receiver.url)
        assert done.returncode == 0, done.stderr
        assert {asked.path for asked in receiver.received} == {"/v1/runs"}
        assert all(CANARY.encode() not in asked.body for asked in receiver.received)
        assert CANARY not in done.stdout + done.stderr
        assert leaks(tmp_path) == []

    @pytest.mark.parametrize("status", [None, 401])
    def test_that_fail_say_where_and_not_with_which_password(
        self, told, status, tmp_path, unused_port
    ) -> None:
        refusing = None if status is None else Receiver(status)
        url = refusing.url if refusing else f"http://127.0.0.1:{unused_port}"
        done = told(url)
        if refusing:
            refusing.close()
        assert done.returncode == 0, done.stderr
        assert f"the sidecar at {url}" in done.stderr
        assert CANARY not in done.stdout + done.stderr
        assert leaks(tmp_path) == []

    def test_to_no_address_at_all_are_refused_unseen(self, told) -> None:
        done = told("http://")
        assert done.returncode == 2
        assert "want a URL" in done.stderr
        assert CANARY not in done.stdout + done.stderr
