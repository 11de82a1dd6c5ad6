"""Champion against challenger on a real Triton: verdicts, budgets, and bad challengers."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from exporter.errors import TritonError
from exporter.testing.faults import Fault, set_fault, write_faulty_model
from exporter.triton.embedded import EmbeddedTriton
from exporter.triton.grpc import GrpcClient
from exporter.triton.model import InferRequest

if TYPE_CHECKING:
    from collections.abc import Generator

DEMO = Path(__file__).parents[2] / "deploy" / "models"
COMMAND = str(Path(sys.executable).with_name("tritonwatch"))
HELD_OUT = DEMO / "digits_fp32/data/held_out.npz"
EFFECT, VERDICT = "triton_comparison_effect", "triton_comparison_verdict"
PAIRS = "triton_comparison_pairs_total"
USED = "triton_comparison_budget_used_ratio"


@pytest.fixture(scope="module")
def pixels():
    with np.load(HELD_OUT) as data:
        return data["pixels"].astype(np.float32)


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """One network as two versions of a model, and others that will misbehave."""
    folder = tmp_path_factory.mktemp("compared") / "models"
    write_faulty_model(
        folder, "digits", source=DEMO / "digits_fp32", versions=("1", "2")
    )
    for name in ("digits_int8", "hangs", "crashes", "errs"):
        write_faulty_model(folder, name, source=DEMO / "digits_int8")
    shutil.copytree(DEMO / "diabetes", folder / "diabetes")
    shutil.copytree(DEMO / "stream", folder / "stream")
    return folder


@pytest.fixture(scope="module")
def server(repository, triton_environment):
    with EmbeddedTriton(repository, environment=triton_environment) as triton:
        yield triton


@pytest.fixture(autouse=True)
def _sound_again(repository) -> Generator[None]:
    yield
    set_fault(repository, "digits", Fault(), version="2")
    set_fault(repository, "digits_int8", Fault())


def comparison(**changes):
    return {
        "name": "test",
        "champion": "digits:1",
        "challenger": "digits:2",
        "inputs": {"source": "golden", "file": str(HELD_OUT)},
        "budget": {"idle_pairs_per_second": 200, "max_pairs_per_second": 200},
        # Wide ones, which a few hundred pairs can decide.
        "margins": {"agreement": 0.1, "output_distance": 0.2, "success": 0.1},
        **changes,
    }


@pytest.fixture
def compare(server, settings, start_sidecar):
    def start(*comparisons, **changes):
        config = settings(server, comparisons=list(comparisons), **changes)
        config["probes"] = []
        config["power"] = None
        return start_sidecar(config)

    return start


def verdict(page, metric, name="test"):
    found = page.all(VERDICT, comparison=name, metric=metric)
    return next((labels["verdict"] for labels, value in found if value == 1), None)


def decided(metric, *wanted, name="test"):
    return lambda page: verdict(page, metric, name) in wanted


class Load(contextlib.AbstractContextManager):
    """Production: requests to one model, one after the other, from a few threads."""

    def __init__(self, grpc, pixels, threads=2, version="1") -> None:
        self._client = GrpcClient(grpc)
        self._pixels, self._version = pixels, version
        self._stop = threading.Event()
        self.sent = 0
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._send) for _ in range(threads)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join(10)
        self._client.close()

    def _send(self):
        number = 0
        while not self._stop.is_set():
            number += 1
            row = self._pixels[number % len(self._pixels)][None]
            request = InferRequest(
                "digits",
                self._version,
                f"production-{number}",
                {"pixels": row},
                {"pixels": "FP32"},
            )
            with contextlib.suppress(TritonError):
                self._client.infer(request, timeout_seconds=5)
            with self._lock:
                self.sent += 1
            time.sleep(0.002)


def test_two_equal_versions_are_found_equivalent_and_never_different(compare):
    sidecar = compare(comparison())
    page = sidecar.wait(decided("agreement", "equivalent"), 40)
    assert verdict(page, "output_distance") == "equivalent"
    assert verdict(page, "success") in {"equivalent", "undecided"}
    assert page.value(EFFECT, metric="agreement", bound="estimate") == 0
    low, high = (
        page.value(EFFECT, metric="success", bound=bound) for bound in ("low", "high")
    )
    assert low < 0 < high
    for metric in ("agreement", "accuracy", "success", "latency_mean", "latency_p95"):
        assert verdict(page, metric) not in {"worse", "better"}


def test_a_challenger_that_shifts_its_classes_is_worse(compare, repository):
    set_fault(repository, "digits", Fault("shifted_class"), version="2")
    sidecar = compare(comparison())
    page = sidecar.wait(decided("accuracy", "worse"), 40)
    assert verdict(page, "agreement") == "worse"
    assert page.value(EFFECT, metric="accuracy", bound="high") < -0.01
    status = sidecar.get("/api/v1/status").text
    assert '"verdict": "worse"' in status.replace('":"', '": "')


def test_a_challenger_that_is_slower_is_worse_in_latency_alone(compare, repository):
    fault = Fault("slow", factor=1.0, delay_ms=5)
    set_fault(repository, "digits", fault, version="2")
    sidecar = compare(comparison())
    page = sidecar.wait(decided("latency_mean", "worse"), 40)
    page = sidecar.wait(decided("latency_p50", "worse"), 40)
    assert page.value(EFFECT, metric="latency_p50", bound="low") > 0.05
    page = sidecar.wait(decided("agreement", "equivalent"), 40)
    assert verdict(page, "accuracy") in {"equivalent", "undecided"}


def test_a_bad_challenger_costs_pairs_and_nothing_else(compare, repository):
    bad = {
        "hangs": ({"challenger_failed", "challenger_missing"}, "hang"),
        "crashes": ({"challenger_failed", "challenger_missing"}, "crash"),
        "errs": ({"challenger_failed"}, "error"),
    }
    for model, (_, fault) in bad.items():
        set_fault(repository, model, Fault(fault, hang_seconds=5))
    sidecar = compare(
        comparison(name="sound"),
        *(
            comparison(
                name=model, challenger=model, timeout_seconds=0.5, metrics=["success"]
            )
            for model in bad
        ),
    )
    # The sound one gets on as if nothing were.
    page = sidecar.wait(decided("agreement", "equivalent", name="sound"), 40)
    asked = {model: page.sum(PAIRS, comparison=model) for model in bad}
    for model, (outcomes, _) in bad.items():
        # The champion's measurements go on while the challenger gives none.
        sidecar.wait(lambda p, m=model: p.sum(PAIRS, comparison=m) > asked[m] + 5, 40)
        page = sidecar.wait(decided("success", "worse", name=model), 60)
        failed = sum(page.sum(PAIRS, comparison=model, outcome=o) for o in outcomes)
        assert failed > 0
        assert page.sum(PAIRS, comparison=model, outcome="champion_failed") == 0
    assert page.value("tritonwatch_collector_success", collector="statistics") == 1


def test_models_that_cannot_be_compared_are_one_clear_error(compare):
    sidecar = compare(
        comparison(name="sound", challenger="digits_int8", metrics=["agreement"]),
        comparison(name="odd", challenger="diabetes"),
        comparison(name="gone", challenger="no_such"),
        comparison(name="stream", challenger="stream"),
        comparison(
            name="file", inputs={"source": "golden", "file": "/nowhere/golden.npz"}
        ),
    )
    page = sidecar.wait(
        lambda p: (p.value(PAIRS, comparison="sound", outcome="both") or 0) > 20, 30
    )
    for name in ("odd", "gone", "stream", "file"):
        assert page.value("triton_comparison_running", comparison=name) == 0
    assert page.value("tritonwatch_collector_success", collector="comparison") == 0
    found = json.loads(sidecar.get("/api/v1/status").text)["comparisons"]
    problems = {c["comparison"]: c["problem"] for c in found}
    assert problems["sound"] is None
    assert problems["odd"] == (
        "input 'age' is absent in digits 1 and FP32[-1, 1] in diabetes 1; both must "
        "take the same requests"
    )
    assert problems["gone"] == "no_such is not among the server's ready models"
    assert problems["stream"].startswith("stream is a decoupled model; only models")
    assert "/nowhere/golden.npz" in problems["file"]
    assert page.value("triton_up") == 1


def test_a_shadow_stays_within_its_budget_under_load(compare, server, pixels):
    ratio = 0.1
    sidecar = compare(
        comparison(
            inputs={"source": "synthetic"},
            budget={
                "request_ratio": ratio,
                "busy_ratio": ratio,
                "idle_pairs_per_second": 0,
                "max_pairs_per_second": 1000,
            },
        )
    )
    requests = "triton_requests_total"
    sidecar.wait(lambda p: bool(p.all(requests, model="digits")), 20)
    with Load(server.grpc, pixels) as load:
        # What is busy time is known when it is booked, some looks later.
        sidecar.wait(
            lambda p: p.sum(PAIRS) >= 30 and p.value(USED, resource="busy"), 40
        )
        page = sidecar.settle()
        asked, sent = page.sum(PAIRS), load.sent
    used = page.value(USED, resource="requests")
    busy = page.value(USED, resource="busy")
    assert 0 < used <= ratio
    assert 0 < busy <= ratio
    assert asked <= ratio * sent
    # And none of it is taken for production.
    page = sidecar.settle(3)
    assert page.sum(requests, model="digits", version="1") == load.sent
    assert page.sum(requests, model="digits", version="2") == 0


def booked(server, version):
    """Triton's own books of one version of `digits`: requests and busy seconds."""
    with contextlib.closing(GrpcClient(server.grpc)) as client:
        (found,) = (
            entry
            for entry in client.statistics(timeout_seconds=10)
            if (entry.name, entry.version) == ("digits", version)
        )
    seconds = 1e-9 * sum(
        part.ns
        for batch in found.batches
        for part in (batch.compute_input, batch.compute_infer, batch.compute_output)
    )
    return np.array([found.success.count, seconds])


def test_a_challenger_that_gets_slow_costs_no_more_busy_time(
    compare, server, repository, pixels
):
    """What a pair costs is known afterwards; Triton's own books are the judge."""
    ratio, delay = 0.2, 0.05
    budget = {
        "request_ratio": 1,
        "busy_ratio": ratio,
        "idle_pairs_per_second": 0,
        "max_pairs_per_second": 1000,
    }
    before = {version: booked(server, version) for version in "12"}
    sidecar = compare(comparison(inputs={"source": "synthetic"}, budget=budget))
    sidecar.wait(lambda p: bool(p.all("triton_requests_total", model="digits")), 20)
    with Load(server.grpc, pixels):
        sidecar.wait(lambda p: p.sum(PAIRS) >= 50, 40)
        slow = Fault("slow", factor=1.0, delay_ms=1e3 * delay)
        set_fault(repository, "digits", slow, version="2")
        asked, _ = booked(server, "2")
        sidecar.wait(lambda _: booked(server, "2")[0] >= asked + 6, 60)
        page = sidecar.wait(lambda p: p.value(USED, resource="busy"), 30)
        (requests, champion), (pairs, challenger) = (
            booked(server, version) - before[version] for version in "12"
        )
    on_our_behalf = champion * pairs / requests
    # The one pair that tells how slow it became may go beyond.
    allowed = ratio * (champion - on_our_behalf) + 1.2 * delay
    assert 6 * delay < challenger + on_our_behalf <= allowed
    assert page.value(USED, resource="busy") > 0


@pytest.mark.slow
def test_the_precision_pair_shows_what_int8_costs(compare, repository):
    set_fault(repository, "digits_int8", Fault("int8_overflow"))
    sidecar = compare(
        comparison(champion="digits:1", challenger="digits_int8", name="precision")
    )
    page = sidecar.wait(decided("accuracy", "worse", name="precision"), 40)
    assert page.value(EFFECT, metric="accuracy", bound="estimate") < -0.3


def test_mirrored_production_requests_are_asked_of_both(compare, pixels):
    sidecar = compare(
        comparison(
            inputs={"source": "mirror"},
            metrics=["agreement"],
            challenger="digits_int8",
        ),
        listen={"address": "127.0.0.1", "port": 0, "tap": {"port": 0}},
        collectors=[
            {"kind": "server", "interval_seconds": 0.5},
            {"kind": "statistics", "interval_seconds": 0.5},
            {"kind": "mirror", "interval_seconds": 0.5},
        ],
    )
    tap = re.search(r"event=tap_listening .*address=\S*?:(\d+)", sidecar.log)
    assert tap, sidecar.log

    def mirror_some(page):
        for number in range(5):
            body = {
                "inputs": [
                    {
                        "name": "pixels",
                        "datatype": "FP32",
                        "shape": [1, 64],
                        "data": [float(v) for v in pixels[number]],
                    }
                ]
            }
            request = urllib.request.Request(
                f"http://127.0.0.1:{tap[1]}/v2/models/digits/infer",
                json.dumps(body).encode(),
                {"Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=5):
                pass
        return (page.value(PAIRS, outcome="both") or 0) >= 5

    page = sidecar.wait(mirror_some, 30)
    assert page.value(EFFECT, metric="agreement", bound="estimate") is not None
    found = json.loads(sidecar.get("/api/v1/status").text)["comparisons"]
    assert found[0]["inputs"] == "mirror"


# The command.


@pytest.fixture
def gate(server, tmp_path):
    """Run `tritonwatch compare --gate`; the finished process."""
    file = tmp_path / "triton.json.yaml"
    target = {"grpc": server.grpc, "http": server.http, "metrics": server.metrics}
    file.write_text(json.dumps({"target": target, "power": None}), "utf-8")

    def run(*arguments, challenger="digits:2"):
        return subprocess.run(
            [
                *(COMMAND, "compare", "--gate", "--config", file),
                *("--champion", "digits:1", "--challenger", challenger, *arguments),
            ],
            capture_output=True,
            text=True,
            timeout=55,
            check=False,
        )

    return run


def test_the_gate_lets_an_equal_challenger_pass(gate):
    done = gate(
        *("--data", str(HELD_OUT), "--metric", "agreement", "--metric", "success"),
        *("--margin", "agreement=0.2", "--margin", "success=0.2", "--json"),
        *("--rate", "300", "--duration", "40"),
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["outcome"] == "passed"
    assert {m["verdict"] for m in report["metrics"]} == {"equivalent"}
    assert report["inputs_sha256"] == hashlib.sha256(HELD_OUT.read_bytes()).hexdigest()
    assert report["versions"]["triton"] == "2.51.0"
    assert report["model_versions"] == ["1", "2"]


def test_the_gate_stops_a_challenger_that_lies(gate, repository):
    set_fault(repository, "digits", Fault("zeros"), version="2")
    done = gate("--data", str(HELD_OUT), "--rate", "300", "--duration", "40")
    assert done.returncode == 1, done.stderr
    assert re.search(r"^accuracy .* worse$", done.stdout, re.MULTILINE)
    assert "digits:2 against digits:1: failed" in done.stdout


def test_the_gate_says_when_it_is_not_decided_and_when_it_cannot_be(gate):
    undecided = gate("--metric", "latency_p99", "--duration", "2")
    assert undecided.returncode == 3, undecided.stderr
    assert "undecided" in undecided.stdout
    for arguments, problem in (
        (("--margin", "speed=1"), "margins.speed: Extra inputs are not permitted"),
        (("--data", "/nowhere.npz"), "/nowhere.npz: cannot be read"),
        (("--metric", "accuracy"), "no labels"),
    ):
        refused = gate(*arguments)
        assert refused.returncode == 2, refused.stderr
        assert problem in refused.stderr
    gone = gate(challenger="no_such")
    assert gone.returncode == 2
    assert "no_such is not among the server's ready models" in gone.stderr
