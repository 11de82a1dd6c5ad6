"""Load generators side by side: what each sends, costs and reports."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sidecar_process import COMMAND, Process

from exporter.triton.grpc import GrpcClient

if TYPE_CHECKING:
    from perf_analyzer import PerfAnalyzer

    from exporter.triton.embedded import EmbeddedTriton

MODEL: Final = "double"
ROOT: Final = Path(__file__).parents[2]
_WARM_SECONDS: Final = 0.5
_WARM_REQUESTS: Final = 500
_TIMEOUT_SECONDS: Final = 120


@dataclass(frozen=True, slots=True)
class Cost:
    """What a generator reached while it ran at full speed."""

    requests_per_second: float
    cpu_microseconds: float
    """Of the client, a request."""


def served(client: GrpcClient) -> int:
    """Requests to the model that the server has answered well since it started."""
    (count,) = (
        s.success.count
        for s in client.statistics(timeout_seconds=10)
        if s.name == MODEL
    )
    return count


def closed_cost(
    triton: EmbeddedTriton,
    command: list[str],
    *,
    seconds: float,
    ends: bool = True,
    **options: Any,
) -> Cost:
    """Run it, and between two instants look at its CPU time and the server's count.

    Without `ends` it is killed then: perf_analyzer does not always come to its end.
    """
    client = GrpcClient(triton.grpc)
    child = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        **options,
    )

    def look() -> tuple[float, int, float]:
        return time.perf_counter(), served(client), Process(child.pid).cpu_seconds()

    try:
        idle = look()[1]
        while look()[1] < idle + _WARM_REQUESTS:
            if child.poll() is not None:
                raise RuntimeError(f"{command[0]} ended with {child.returncode}")
            time.sleep(0.02)
        time.sleep(_WARM_SECONDS)
        before = look()
        time.sleep(seconds)
        after = look()
        if ends:
            child.wait(_TIMEOUT_SECONDS)
    finally:
        child.kill()
        child.wait()
        client.close()
    elapsed, count, cpu = (b - a for a, b in zip(before, after, strict=True))
    return Cost(count / elapsed, cpu / count * 1e6)


def ours(triton: EmbeddedTriton, protocol: str, *options: str) -> list[str]:
    """`tritonwatch load run` on the model."""
    address = getattr(triton, protocol)
    return [
        *(COMMAND, "load", "run", "--quiet", "--protocol", protocol),
        *("--address", address, "--model", MODEL, *options),
    ]


def theirs(
    analyzer: PerfAnalyzer, triton: EmbeddedTriton, protocol: str, *options: str
) -> list[str]:
    """perf_analyzer on the model, at its fastest for the protocol."""
    asynchronous = ["--async"] if protocol == "grpc" else []
    return [
        *(str(analyzer.program), "-m", MODEL, "-i", protocol),
        *("-u", getattr(triton, protocol), *asynchronous),
        *("--measurement-mode", "time_windows", "-s", "900", *options),
    ]


def locust_document(
    triton: EmbeddedTriton, rate: int, seconds: float, *, seed: int
) -> dict[str, Any]:
    """Our open loop inside Locust: the document that `--result` writes."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        subprocess.run(
            [
                *(sys.executable, "-m", "locust", "-f", "loadtests/locustfile.py"),
                *("--headless", "--only-summary", "--host", f"grpc://{triton.grpc}"),
                *("--model", MODEL, "--load-profile", "poisson"),
                *("--rate", str(rate), "--duration", f"{seconds:g}"),
                *("--seed", str(seed), "--result", str(result)),
            ],
            capture_output=True,
            cwd=ROOT,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
        document: dict[str, Any] = json.loads(result.read_text("utf-8"))
    return document
