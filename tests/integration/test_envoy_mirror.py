"""A real Envoy with the shipped configuration mirrors HTTP and gRPC to the sidecar, and
what state that is in costs the client nothing."""

from __future__ import annotations

import contextlib
import subprocess

import numpy as np
import pytest
from mirrored_traffic import (
    MODEL,
    assert_mirror_costs_nothing,
    assert_requests_arrive,
    sidecar_config,
    spoiled_tap,
)
from monitoring import free_port
from proxies import ENVOY_CONFIG, ENVOY_LOG, Envoy, envoy_binary

from exporter.triton.grpc import GrpcClient
from exporter.triton.protocol_types import InferRequest

pytestmark = pytest.mark.triton

# Of a copy whose tap does not answer; who had to wait for it would be seen on any machine.
PATIENCE_SECONDS = 60
X = np.ones((2, 8), np.float32)


@pytest.fixture
def start_proxy(tmp_path_factory, playground):
    envoy_binary()
    with contextlib.ExitStack() as stack:

        def start(*taps, **options):
            folder = tmp_path_factory.mktemp("envoy")
            return stack.enter_context(
                contextlib.closing(Envoy(folder, playground, taps, **options))
            )

        yield start


def test_envoy_finds_nothing_wrong_with_the_configuration(tmp_path):
    shipped = ENVOY_CONFIG.read_text("utf-8")
    text = shipped.replace(ENVOY_LOG, str(tmp_path / "requests.log"))
    config = tmp_path / "envoy.yaml"
    config.write_text(text)
    command = [envoy_binary(), "--mode", "validate", "-c", config]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert "deprecated" not in found.stderr.lower()
    spoiled = tmp_path / "spoiled.yaml"
    spoiled.write_text(text.replace("request_mirror_policies", "mirror_to"))
    command[-1] = spoiled
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0


def test_mirrored_requests_of_both_protocols_arrive_and_are_parsed(
    playground, start_sidecar, start_proxy, settings
):
    taps = free_port(), free_port()
    sidecar = start_sidecar(
        sidecar_config(settings, playground, taps[0], grpc_port=taps[1])
    )
    sidecar.wait(lambda page: page.value("triton_model_ready", model=MODEL) == 1)
    proxy = start_proxy(*taps)
    assert_requests_arrive(sidecar, proxy.port)
    direct = GrpcClient(f"127.0.0.1:{proxy.grpc_port}")
    message = InferRequest(MODEL, "", "production", {"x": X}, {"x": "FP32"})
    for _ in range(10):
        direct.infer(message, timeout_seconds=20)
    direct.close()
    name = "tritonwatch_tap_samples_total"
    sidecar.wait(lambda page: page.sum(name, model=MODEL, source="grpc") == 10)
    assert "error" not in proxy.log


@pytest.mark.parametrize("state", ["frozen", "dead", "slow"])
def test_a_sidecar_in_a_bad_state_costs_the_client_nothing(
    playground, start_sidecar, start_proxy, settings, state
):
    """Held against a second Envoy that mirrors nothing, in turns on the same machine."""
    taps = free_port(), free_port()
    config = sidecar_config(settings, playground, taps[0], grpc_port=taps[1])
    with spoiled_tap(state, taps, lambda: start_sidecar(config)) as spoil:
        mirrored, plain = start_proxy(*taps), start_proxy(*taps, mirrors=False)
        assert_mirror_costs_nothing(
            mirrored.port, plain.port, spoil, PATIENCE_SECONDS / 4
        )
