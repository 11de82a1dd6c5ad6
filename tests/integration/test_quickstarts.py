"""The quick starts word for word: every command, in its order, on a real Triton."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import documents
import pytest
import yaml
from documents import ROOT
from requirements import lacking, require
from waiting import patience

if TYPE_CHECKING:
    from collections.abc import Generator

pytestmark = [pytest.mark.triton, pytest.mark.slow, pytest.mark.timeout(900)]

PAGES = sorted(
    f"deploy/quickstarts/{p.name}" for p in ROOT.glob("deploy/quickstarts/*")
)
PORTS = (8000, 8001, 8002, 8003, 8004, 8013, 8014)
# What takes minutes for numbers to be good is asked for less of them; see `line`.
SHORTER = {
    "tritonwatch load capacity": "--budget 15 --run-seconds 1 --repetitions 3 --max-rate 400",
    "tritonwatch load efficiency": "--level-seconds 2",
    "tritonwatch load pair": "--pairs 3 --block-seconds 1",
    "tritonwatch load run": "--duration 10",  # p99 is not proven by fewer requests
}
SOON_SECONDS = 40


@contextlib.contextmanager
def default_ports() -> Generator[None]:
    """Triton's usual ports, which only one test run of a machine can have at a time."""
    with (Path(tempfile.gettempdir()) / "tritonwatch-ports.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for port in PORTS:
            with socket.socket() as one:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    one.bind(("127.0.0.1", port))
                except OSError as error:
                    lacking(f"the quick starts need port {port}: {error}")
        yield


class Reader:
    """Who follows a page: a folder like the checkout's root, and terminals in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for entry in ROOT.iterdir():
            if entry.name not in {".git", "build"}:
                (folder / entry.name).symlink_to(entry)
        if not (folder / ".run").exists():
            # It has what the sidecar runs with, and more.
            (folder / ".run").symlink_to(ROOT / ".venv")
        self.environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        self._going_on: dict[str, subprocess.Popen[bytes]] = {}

    def block(self, block: documents.Block) -> None:
        if block.language == "yaml" and block.file:
            (self.folder / block.file).write_text(block.text, "utf-8")
        elif block.language == "sh":
            for line in documents.lines(block):
                self.line(line)

    def line(self, line: documents.Line) -> None:
        """Do as a person would: a demo and a sidecar go on, a page is asked for again."""
        command = self.as_made(line.command)
        if command.startswith("tritonwatch demo") and "--duration" not in command:
            self.go_on("demo", command, "http://127.0.0.1:8003/-/ready")
            return
        if command.startswith("tritonwatch serve"):
            config = yaml.safe_load((self.folder / "tritonwatch.yaml").read_text())
            port = config["listen"]["port"]
            self.go_on("serve", command, f"http://127.0.0.1:{port}/-/healthy")
            return
        if command.startswith("tritonwatch demo"):
            # "Stop the demo first."
            self.end()
        for start, options in SHORTER.items():
            if command.startswith(start):
                command = f"{command} {options}"
        deadline = time.monotonic() + (SOON_SECONDS if "curl" in command else 0)
        while True:
            done = subprocess.run(
                ["bash", "-c", f"set -o pipefail; {command}"],
                cwd=self.folder,
                env=self.environment,
                capture_output=True,
                text=True,
                timeout=400,
                check=False,
            )
            if done.returncode in line.statuses:
                with contextlib.suppress(AssertionError):
                    reached(command, done.stdout)
                    break
                if time.monotonic() > deadline:
                    break
            elif time.monotonic() > deadline:
                pytest.fail(
                    f"{command}: exit {done.returncode}, want {set(line.statuses)}\n"
                    f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}\n{self.said()}"
                )
            time.sleep(0.5)
        assert "Traceback" not in done.stderr, done.stderr
        reached(command, done.stdout)

    def as_made(self, command: str) -> str:
        """What make would run, without its looking after the environments."""
        found = re.fullmatch(r'make demo(?: ARGS="(.*)")?', command)
        if found is None:
            return command
        printed = subprocess.run(
            ["make", "--no-print-directory", "--dry-run", *shlex.split(command)[1:]],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        ).stdout.splitlines()[-1]
        assert printed.split() == [
            ".run/bin/tritonwatch",
            "demo",
            *(found[1] or "").split(),
        ]
        return printed.removeprefix(".run/bin/")

    def go_on(self, name: str, command: str, url: str) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                shlex.split(command),
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._going_on[name] = process
        deadline = time.monotonic() + patience(90)
        while True:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(url, timeout=2).close()
                return
            said = (self.folder / f"{name}.log").read_text("utf-8")
            assert process.poll() is None, said
            assert time.monotonic() < deadline, said
            time.sleep(0.2)

    def said(self) -> str:
        """What goes on has last printed."""
        logs = [self.folder / f"{name}.log" for name in self._going_on]
        return "\n".join(f"{log.name}: {log.read_text()[-1500:]}" for log in logs)

    def end(self) -> None:
        for process in self._going_on.values():
            process.send_signal(signal.SIGTERM)
        for process in self._going_on.values():
            assert process.wait(patience()) in {0, 128 + signal.SIGTERM}, self.said()
        self._going_on.clear()


# Outcomes that the pages name: the beginning of a command, and a line of what it prints.
SEEN = {
    # On call.
    r"curl .*triton_\(up\|model_serving\)": r"^triton_up 1(\.0)?$",
    r"tritonwatch audit": r"(?is)verdict: .*where a request's time goes",
    r"curl .*triton_slo_error_budget": r'slo="answers"',
    r"curl .*/-/ready": r"^tritonwatch is ready$",
    r"promtool check rules slo-rules.yaml": r"SUCCESS: [1-9]\d* rules found",
    r"promtool check config": r"SUCCESS: prometheus.yml is valid",
    r"amtool check-config": r"SUCCESS",
    # A language model.
    r"curl .*generate_stream": r'^data: .*"text_output"',
    r"curl .*response_gap\)_seconds_count": r'first_response_seconds_count\{.*"llm".*\} [1-9]',
    r"curl .*first_response_latency_seconds": r'quantile="0.5"',
    r"curl .*triton_tokens_total'": r'model="llm".* [1-9]',
    r"curl .*triton_backend": r"^triton_backend_requests_running",
    r"tritonwatch load run --model llm": r"per second within ttft<500ms,itl<50ms",
    # Capacity.
    r"tritonwatch load list": r"^\s*poisson\b",
    r"tritonwatch load run --model slow": r"p99<60ms +(PASS|FAIL) ",
    r"tritonwatch load report monday": r"OBJECTIVE (MET|MISSED|NOT PROVEN)",
    # A game day.
    r"tritonwatch chaos list": r"server-killed-nobody-restarts",
}


def reached(command: str, printed: str) -> None:
    """What a command's exit status alone does not show."""
    for start, line in SEEN.items():
        if re.match(start, command):
            assert re.search(line, printed, re.MULTILINE), f"{command}:\n{printed}"
    if re.match(r"curl .*model_serving", command):
        serving = re.findall(
            r"^triton_model_serving\{.*\} (\S+)$", printed, re.MULTILINE
        )
        assert len(serving) >= 5, "the demo's five models"
        assert set(serving) <= {"1", "1.0"}, printed
    if "--scenario silent-failure" in command:
        assert "! digits_fp32: returns wrong answers: golden" in printed
        assert "! digits-accuracy: its control chart is out of control" in printed
        assert re.search(r"digits_fp32 +LYING ", printed)
    if "tritonwatch compare" in command and "--gate" in command:
        assert re.search(r": passed after \d+ pairs", printed), printed
        assert re.search(r"^accuracy .* equivalent$", printed, re.MULTILINE), printed
        assert "undecided" not in printed, printed


@pytest.fixture
def reader(tmp_path, triton_environment) -> Generator[Reader]:
    require("prometheus", "promtool", "amtool", "curl")
    with default_ports():
        one = Reader(tmp_path)
        try:
            yield one
        finally:
            for process in one._going_on.values():
                process.terminate()
                process.wait(patience(30))


@pytest.mark.parametrize("page", PAGES)
def test_each_command_of_a_quick_start_does_what_it_says(reader, page) -> None:
    for block in documents.blocks(page):
        reader.block(block)
    reader.end()
