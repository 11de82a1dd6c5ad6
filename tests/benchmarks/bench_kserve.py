"""Load on a KServe-v2 server that is no Triton: MLServer, without Triton's extensions.

No model configuration, statistics, shared memory or binary tensors over HTTP. It lives in
an environment of its own; README.md says how to make it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import figures
from monitoring import free_port
from processes import COMMAND

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from figures import Figure

ROOT = Path(__file__).parents[2]
MLSERVER = ROOT / "build" / "mlserver" / "bin" / "mlserver"
_START_SECONDS = 120
_RUN_SECONDS = 120


class Ports(NamedTuple):
    """Where MLServer listens."""

    http: int
    grpc: int


def mlserver(*, quick: bool = False) -> Iterator[Figure]:
    """Runs, a search, Locust and what it cannot do, over both protocols: what fails."""
    figures.require(
        found=MLSERVER.is_file(),
        what="MLServer",
        how="see Another KServe server in tests/benchmarks/README.md",
    )
    with _served() as ports:
        wrong = [told for told in _checked(ports, quick=quick) if told]
    for told in wrong:
        sys.stderr.write(f"{told}\n")
    yield figures.at_most(
        "kserve.mlserver.wrong",
        len(wrong),
        "commands",
        0,
        measured="`load run` over gRPC and HTTP, open and closed, in batches, `load "
        "capacity`, Locust, and four mistakes, on MLServer: how many did not do or say "
        f"what they should{': ' + '; '.join(wrong) if wrong else ''}",
        n=len(_CASES) + 2,
        versions=figures.versions(mlserver="1.7.1"),
    )


# Arguments, exit statuses that are right, what has to be said.
_CASES: tuple[tuple[str, set[int], str], ...] = (
    ("run {grpc} --model double --concurrency 4 --duration 2", {0, 3}, "right answers"),
    ("run {http} --model double --concurrency 4 --duration 2", {0, 3}, "right answers"),
    ("run {grpc} --model double --profile poisson --rate 30 --duration 2", {0, 3}, "VALID"),
    ("run {http} --model double --profile poisson --rate 30 --duration 2", {0, 3}, "VALID"),
    ("run {grpc} --model double --batch 4 --concurrency 2 --duration 1", {0, 3}, "VALID"),
    ("run {http} --model double --batch 4 --concurrency 2 --duration 1", {0, 3}, "VALID"),
    ("run {grpc} --model nope --concurrency 1", {1}, "has no model 'nope' to load"),
    ("run {http} --model nope --concurrency 1", {1}, "has no model 'nope' to load"),
    ("run {grpc} --model double --shared-memory --concurrency 1", {1}, "does not take shared"),
    ("run {http} --model double --shared-memory --concurrency 1", {1}, "does not take shared"),
)  # fmt: skip


def _checked(ports: Ports, *, quick: bool) -> Iterator[str]:
    """What each command did wrong; "" where nothing."""
    where = {
        "grpc": f"--address 127.0.0.1:{ports.grpc}",
        "http": f"--protocol http --address 127.0.0.1:{ports.http}",
    }
    for arguments, statuses, said in _CASES:
        yield _command(arguments.format(**where), statuses, said)
    seconds = 8 if quick else 60
    search = (
        f"capacity {where['grpc']} --model double --slo p99<200ms --budget {seconds} "
        "--run-seconds 2 --repetitions 3 --other-cpu 16 --max-concurrency 4"
    )
    yield _command(search, {0, 1, 3}, "saturates: ")
    yield _locust(ports)


def _command(arguments: str, statuses: set[int], said: str) -> str:
    done = subprocess.run(
        [COMMAND, "load", *arguments.split(), "--quiet"],
        capture_output=True,
        text=True,
        timeout=_RUN_SECONDS,
        check=False,
    )
    told = done.stdout + done.stderr
    missed = "missed  " in told
    if done.returncode in statuses and said in told and not missed:
        return ""
    return f"`load {arguments}` ended with {done.returncode}: {told.strip()[-300:]}"


def _locust(ports: Ports) -> str:
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        done = subprocess.run(
            [
                *(sys.executable, "-m", "locust", "-f", "loadtests/locustfile.py"),
                *("--headless", "--only-summary", "--model", "double"),
                *("--host", f"http://127.0.0.1:{ports.http}", "--result", str(result)),
                *("--load-profile", "poisson", "--rate", "30", "--duration", "2"),
            ],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=_RUN_SECONDS,
            check=False,
        )
        if not result.is_file():
            return f"locust ended with {done.returncode}: {done.stderr.strip()[-300:]}"
        document: dict[str, Any] = json.loads(result.read_text("utf-8"))
    outcomes = document["outcomes"]
    return "" if set(outcomes) == {"ok"} else f"Locust counted {outcomes}"


@contextlib.contextmanager
def _served() -> Generator[Ports]:
    """MLServer with `double`, until the block ends."""
    ports = Ports(free_port(), free_port())
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(
            ROOT / "tests" / "data" / "mlserver", folder, dirs_exist_ok=True
        )
        child = subprocess.Popen(
            [str(MLSERVER), "start", folder],
            cwd=folder,
            env={
                **os.environ,
                "MLSERVER_HOST": "127.0.0.1",
                "MLSERVER_HTTP_PORT": str(ports.http),
                "MLSERVER_GRPC_PORT": str(ports.grpc),
                "MLSERVER_METRICS_PORT": str(free_port()),
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _wait_ready(child, ports)
            yield ports
        finally:
            child.terminate()
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def _wait_ready(child: subprocess.Popen[bytes], ports: Ports) -> None:
    end = time.monotonic() + _START_SECONDS
    address = f"http://127.0.0.1:{ports.http}/v2/models/double/ready"
    while time.monotonic() < end:
        if child.poll() is not None:
            raise RuntimeError(f"MLServer ended with {child.returncode}")
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(address, timeout=2) as answer,
        ):
            if answer.status == 200:
                return
        time.sleep(0.2)
    raise RuntimeError(f"MLServer was not ready within {_START_SECONDS} s")
