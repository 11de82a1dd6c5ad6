"""The status page in a real browser beside an OpenAI-compatible server."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect
from scripted_vllm import ScriptedVllm

WAIT_MS = 30_000


@pytest.fixture
def llm():
    with ScriptedVllm() as llm:
        yield llm


def test_it_shows_the_server_its_probes_and_what_its_backend_reports(
    llm, start_sidecar, opened
) -> None:
    llm.pause = 0.02
    sidecar = start_sidecar(
        {
            "target": llm.target(),
            "listen": {
                "address": "127.0.0.1",
                "port": 0,
                "tap": {"port": 0, "grpc_port": 0},
            },
            "probes": [{"kind": "synthetic", "interval_seconds": 0.2}],
            "collectors": [{"kind": "server", "interval_seconds": 0.5}],
            "power": None,
        }
    )
    sidecar.wait(
        lambda page: page.value("triton_probe_latency_seconds", quantile="0.5")
    )
    sidecar.wait(lambda page: page.value("triton_backend_requests_waiting"))
    page = opened(sidecar.port)
    server = page.locator("#server")
    address = f"http://{llm.server.address}"
    expect(server).to_contain_text(f"vllm 0.11.2 at {address}: up and ready")
    rows = page.get_by_role("region", name="Readiness and probes by model", exact=True)
    expect(rows.get_by_role("row").filter(has_text="chatty")).to_contain_text("ok")
    tiles = page.locator("#tiles")
    expect(tiles).to_contain_text("2requests wait in the backend")
    expect(tiles).to_contain_text("75 %of the KV cache in use")
    expect(tiles).not_to_contain_text("production requests")
    expect(page.locator("#latency-caption")).to_contain_text("our probes over HTTP")
    expect(page.get_by_text("Production requests a second")).to_be_hidden()
    llm.server.__exit__()
    expect(server).to_contain_text("down", timeout=WAIT_MS)
    expect(page.locator("body")).to_contain_text("vllm: does not answer")
