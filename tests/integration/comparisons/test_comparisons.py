"""Champion against challenger on a real Triton: verdicts and bad challengers."""

from __future__ import annotations

import json
import re
import urllib.request

import numpy as np
import pytest
from accesses import access_to
from compared_versions import EFFECT, PAIRS, comparison, decided, verdict

from exporter.features.comparison.comparison_inputs import Input, Side, infer
from exporter.triton.faulty_model import Fault, set_fault
from exporter.triton.grpc import GrpcClient


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
    page = sidecar.wait(decided("latency_p50", "worse"), 40)
    # A few hundred pairs with a stall among them do not show how rare stalls are, and
    # then the mean has no verdict.
    assert verdict(page, "latency_mean") not in {"better", "equivalent"}
    assert page.value(EFFECT, metric="latency_p50", bound="low") > 0.05
    page = sidecar.wait(decided("agreement", "equivalent"), 40)
    assert verdict(page, "accuracy") in {"equivalent", "undecided"}


@pytest.mark.slow
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


def test_a_champion_that_hangs_does_not_make_the_challenger_worse(compare, repository):
    set_fault(repository, "hangs", Fault("hang", hang_seconds=5))
    sidecar = compare(
        comparison(champion="hangs", timeout_seconds=0.5, metrics=["success"])
    )
    page = sidecar.wait(
        lambda p: (p.all(PAIRS, outcome="champion_missing") or [(0, 0)])[0][1] > 20, 40
    )
    assert page.value(PAIRS, outcome="champion_failed") > 0
    assert verdict(page, "success") != "worse"


def test_an_answer_without_its_output_is_a_failure_and_agrees_with_none(server):
    """Triton counts it as a success. Of no output there is nothing to compare."""
    grpc = GrpcClient(server.grpc)
    x = Input({"x": np.ones(1, np.float32)})
    try:
        counts, mute = (
            grpc.model_spec(name, "1", timeout_seconds=10)
            for name in ("counts", "mute")
        )
        access = access_to(grpc)
        assert infer(access, 10, Side(counts), x).reply is not None
        answered = infer(access, 10, Side(mute), x)
    finally:
        grpc.close()
    assert answered.reply is None
    assert answered.failure == "mute 1: output 'y' is missing; found []"


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
