"""Load generators side by side: what each sends, costs and reports."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from processes import COMMAND, Process
from tritonclient.grpc import service_pb2 as pb

from exporter.histogram import Histogram
from exporter.triton.grpc import GrpcClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from perf_analyzer import PerfAnalyzer

    from exporter.triton.embedded import EmbeddedTriton

MODEL: Final = "double"
ROOT: Final = Path(__file__).parents[2]
LOADGEN_HOW: Final = (
    "python -m venv build/loadgen && build/loadgen/bin/pip install "
    "mlcommons-loadgen==6.0.17 grpcio"
)
_LOADGEN: Final = ROOT / "build" / "loadgen" / "bin" / "python"
_WARM_SECONDS: Final = 0.5
_WARM_REQUESTS: Final = 500
_TIMEOUT_SECONDS: Final = 120
# Locust as its users write it: a rate by constant_throughput, a stock client.
_LOCUSTFILE: Final = """
from locust import FastHttpUser, constant_throughput, task

class Plain(FastHttpUser):
    wait_time = constant_throughput({rate} / {users})

    @task
    def infer(self):
        self.client.post("/v2/models/{model}/infer", json={body})
"""


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


def during(begin_seconds: float, work: Callable[[], None]) -> threading.Timer:
    """Do it in so many seconds, in a thread."""
    timer = threading.Timer(begin_seconds, work)
    timer.daemon = True
    timer.start()
    return timer


def analyzer_p99(command: list[str], environment: dict[str, str]) -> float | None:
    """Run perf_analyzer to its end: seconds of the p99, None where it tells none."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.csv"
        done = subprocess.run(
            [*command, "-f", str(report)],
            env=environment,
            capture_output=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
        if done.returncode or not report.is_file():
            return None
        with report.open(newline="", encoding="utf-8") as lines:
            row = next(csv.DictReader(lines))
    return float(row["p99 latency"]) / 1e6


def plain_locust_p99(triton: EmbeddedTriton, rate: int, seconds: int) -> float:
    """Locust with 32 users that keep to a rate: seconds of the p99 that it reports."""
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 8], "data": [0.0] * 8}
    text = _LOCUSTFILE.format(
        rate=rate, users=32, model=MODEL, body=repr({"inputs": [tensor]})
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "locustfile.py"
        file.write_text(text, "utf-8")
        done = subprocess.run(
            [
                *(sys.executable, "-m", "locust", "-f", str(file), "--headless"),
                *("-u", "32", "-r", "32", "-t", f"{seconds}s", "--json"),
                *("--host", f"http://{triton.http}", "--only-summary"),
            ],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    (entry,) = json.loads(done.stdout)
    count = sum(entry["response_times"].values())
    seen = 0
    for milliseconds, number in sorted(
        (float(key), number) for key, number in entry["response_times"].items()
    ):
        seen += number
        if seen >= 0.99 * count:
            return milliseconds / 1e3
    raise RuntimeError("Locust reported no requests")


def has_loadgen() -> bool:
    """Whether the real LoadGen can be run, and ask over gRPC."""
    command = [str(_LOADGEN), "-c", "import grpc, mlperf_loadgen"]
    return (
        _LOADGEN.is_file()
        and not subprocess.run(command, capture_output=True, check=False).returncode
    )


def loadgen_p99(triton: EmbeddedTriton, rate: int, seconds: float) -> float:
    """MLPerf's LoadGen, its Server scenario over gRPC: seconds of its p99."""
    message = pb.ModelInferRequest(model_name=MODEL)
    message.inputs.add(name="x", datatype="FP32", shape=(1, 8))
    message.raw_input_contents.append(bytes(4 * 8))
    done = subprocess.run(
        [
            *(str(_LOADGEN), str(Path(__file__).with_name("loadgen_server.py"))),
            *(triton.grpc, str(rate), str(seconds)),
        ],
        input=message.SerializeToString(),
        stdout=subprocess.PIPE,
        timeout=_TIMEOUT_SECONDS,
        check=True,
    )
    return float(done.stdout)


def locust_p99(triton: EmbeddedTriton, rate: int, seconds: float) -> float | None:
    """Our open loop inside Locust: seconds of the p99 that it reports."""
    document = locust_document(triton, rate, seconds, seed=rate)
    state = document["histograms"]["from_intended"]
    return Histogram.from_state(state).quantile(0.99)


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
