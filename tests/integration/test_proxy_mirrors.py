"""The shipped nginx and Envoy mirror what they bring to a real Triton; the sidecar sees it,
and costs the client nothing, whatever state it is in."""

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
from proxies import ENVOY_CONFIG, ENVOY_LOG, Envoy, Nginx, envoy_binary
from requirements import require

from exporter.triton.grpc import GrpcClient
from exporter.triton.protocol_types import InferRequest

pytestmark = pytest.mark.triton

# The shipped patience of nginx with a tap is 100 ms. This one is so long that no copy is
# given up on a busy machine, and that a client that had to wait for it would be seen.
# Envoy's is 60 s.
PATIENT = {"timeout 100ms": "timeout 30s"}
NO_MIRROR = {"        mirror /_tritonwatch;\n": ""}
LONGEST_SECONDS = 15
X = np.ones((2, 8), np.float32)


def nginx(folder, playground, taps, *, mirrors=True):
    require("nginx")
    replaced = PATIENT if mirrors else NO_MIRROR
    return Nginx(folder, playground.http, f"127.0.0.1:{taps[0]}", **replaced)


def envoy(folder, playground, taps, *, mirrors=True):
    envoy_binary()
    return Envoy(folder, playground, taps, mirrors=mirrors)


@pytest.fixture(params=[nginx, envoy], ids=lambda kind: kind.__name__)
def start_proxy(request, tmp_path_factory, playground):
    with contextlib.ExitStack() as stack:

        def start(taps, **options):
            folder = tmp_path_factory.mktemp("proxy")
            made = request.param(folder, playground, taps, **options)
            return stack.enter_context(contextlib.closing(made))

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


def test_mirrored_requests_arrive_and_are_parsed(
    playground, start_sidecar, start_proxy, settings
):
    taps = free_port(), free_port()
    config = sidecar_config(settings, playground, taps[0], grpc_port=taps[1])
    sidecar = start_sidecar(config)
    sidecar.wait(lambda page: page.value("triton_model_ready", model=MODEL) == 1)
    proxy = start_proxy(taps)
    assert_requests_arrive(sidecar, proxy.port)
    if isinstance(proxy, Envoy):
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
    """Held against a second proxy that mirrors nothing, in turns on the same machine."""
    taps = free_port(), free_port()
    config = sidecar_config(settings, playground, taps[0], grpc_port=taps[1])
    with spoiled_tap(state, taps, lambda: start_sidecar(config)) as spoil:
        mirrored, plain = start_proxy(taps), start_proxy(taps, mirrors=False)
        # Whoever waited for the tap once waited for most of the proxy's patience.
        assert_mirror_costs_nothing(mirrored.port, plain.port, spoil, LONGEST_SECONDS)
