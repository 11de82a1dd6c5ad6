"""Probes of decoupled models on the real Triton: protocols, and limits on their pace."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest
from streaming_models import TEXT, synthetic
from waiting import patience

from exporter.access.inventory import Inventory
from exporter.features.synthetic.synthetic_settings import SyntheticSettings

pytestmark = pytest.mark.triton


def test_inputs_that_generate_cannot_carry_are_probed_over_grpc_only(access) -> None:
    spec = access.board.current.models["stream", "1"]
    matrix = replace(spec.inputs[0], shape=(-1, 4))
    board = {("stream", "1"): replace(spec, inputs=(matrix,))}
    inventory = Inventory(up=True, ready=True, models=board)
    probe = SyntheticSettings().build(access)
    assert [t.protocol for t in probe.targets(inventory)] == ["grpc"]
    assert {t.protocol for t in probe.targets(access.board.current)} == {"grpc", "http"}


LIMITS = {"max_first_response_seconds": 5, "max_gap_seconds": 0.3}


def test_a_stream_within_its_limits_is_ok_and_timed(access, fault, protocol) -> None:
    fault(at=3, seconds=0.2)
    verdict = synthetic(access, protocols=[protocol], **LIMITS)
    assert verdict.outcome == "ok"
    assert 0 < verdict.first_response_seconds < verdict.duration_seconds
    assert len(verdict.gap_seconds) == len(TEXT.split()) - 1
    assert verdict.gap_seconds[2] == pytest.approx(0.2, abs=patience(0.05))


@pytest.mark.parametrize(
    ("at", "limits", "shown"),
    [
        (3, LIMITS, "response 4 came"),
        (0, {"max_first_response_seconds": 0.3}, "the first response came"),
    ],
)
def test_a_stream_beyond_a_limit_is_stalled_and_not_dead(
    access, fault, protocol, at, limits, shown
) -> None:
    limits = {"protocols": [protocol], **limits}
    fault(at=at, seconds=0.6)
    verdict = synthetic(access, **limits)
    assert verdict.outcome == "stalled"
    assert verdict.detail.startswith(shown)
    assert verdict.detail.endswith("allowed are 0.3 s")
    assert synthetic(access).outcome == "ok"
    assert synthetic(access, timeout_seconds=0.5, **limits).outcome == "timeout"
    # A wrong answer is the worse fault.
    fault(at=at, seconds=0.6, score="nan")
    assert synthetic(access, **limits).outcome == "bad_output"


@pytest.mark.parametrize("how", [{"at": 3, "seconds": 1.5}, {"pause": 0.01}])
def test_a_stream_that_never_ends_is_a_timeout(access, fault, protocol, how) -> None:
    """It stops in the middle, or continues without end."""
    fault(**how)
    endless = {"inputs": {"text": {"values": ["word " * 150]}}}
    started = time.monotonic()
    verdict = synthetic(
        access,
        protocols=[protocol],
        overrides={"speaker": endless},
        timeout_seconds=0.3,
        linger_seconds=0.2,
    )
    assert verdict.outcome == "timeout"
    assert time.monotonic() - started < patience(1.5)


def test_no_response_at_all_is_a_fault_where_a_first_one_is_expected(
    access, protocol
) -> None:
    silent = {"speaker": {"inputs": {"text": {"values": [""]}}}}
    probe = {"protocols": [protocol], "overrides": silent}
    assert synthetic(access, **probe).outcome == "ok"
    verdict = synthetic(access, **probe, **LIMITS)
    assert verdict.outcome == "bad_output"
    assert "no response" in verdict.detail


def test_a_limit_of_one_model_is_in_place_of_the_probes(access, fault) -> None:
    fault(at=3, seconds=0.6)
    patient = {"inputs": {"text": {"values": [TEXT]}}, "max_gap_seconds": 60}
    assert synthetic(access, overrides={"speaker": patient}, **LIMITS).outcome == "ok"


def test_a_stalling_model_serves_and_is_counted(
    server, start_sidecar, settings, fault, protocol
) -> None:
    probe = {
        "protocols": [protocol],
        "interval_seconds": 0.2,
        "timeout_seconds": 10,
        "models": {"include": ["speaker"]},
        "overrides": {"speaker": {"inputs": {"text": {"values": [TEXT]}}}},
        **LIMITS,
    }
    fault(at=3, seconds=0.6)
    sidecar = start_sidecar(settings(server, probe=probe))
    of = {"model": "speaker"}
    page = sidecar.wait(
        lambda page: page.sum("triton_probe_total", outcome="stalled", **of) >= 2
    )
    assert page.value("triton_model_serving", **of) == 1
    assert [value for _, value in page.all("triton_probe_success", **of)] == [0]
    assert page.sum("triton_probe_total", outcome="timeout", **of) == 0
    assert state(sidecar, "speaker") == "SLOW"
    fault()
    sidecar.wait(lambda page: page.sum("triton_probe_success", **of) == 1)
    assert state(sidecar, "speaker") == "SERVING"


def state(sidecar, name):
    """The headline of a model on the status page."""
    status = json.loads(sidecar.get("/api/v1/status").text)
    [found] = [model["state"] for model in status["models"] if model["model"] == name]
    return found
