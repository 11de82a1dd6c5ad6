"""A page of another site, in a real browser, can neither write to the taps nor read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from fake_triton import FakeModel, FakeTriton
from machine_browser import chromium
from monitoring import free_port
from receiver import Receiver

if TYPE_CHECKING:
    from collections.abc import Generator


BODY = json.dumps(
    {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}
)
ACKNOWLEDGEMENT = json.dumps({"signal": "up"})
RUN = json.dumps({"run": "r", "kind": "load", "profile": "p", "phase": "p"})
CAPACITY = json.dumps(
    {"model": "m", "slo": "s", "requests_per_second": 2, "low": 1, "high": 3}
)
# "no-cors" is how a page sends what it may not read the answer to.
ATTEMPT = """async ([url, body]) => {
    try {
        const options = {method: "POST", mode: "no-cors", body};
        await fetch(url, {...options, headers: {"content-type": "text/plain"}});
        return "sent";
    } catch (error) { return String(error); }
}"""


@pytest.fixture
def site() -> Generator[str]:
    """The URL of another site."""
    with Receiver(body=b"<title>another site</title>") as server:
        yield server.url


@pytest.fixture
def browser():
    # evil.example is the attacker's name, re-bound to this machine.
    with chromium("--host-resolver-rules=MAP evil.example 127.0.0.1") as running:
        yield running


@pytest.fixture
def watched(settings, start_sidecar):
    with FakeTriton([FakeModel("m")]) as fake:
        signal = {"name": "up", "metric": "triton_up", "every_seconds": 1}
        more = [
            {"kind": "mirror"},
            {"kind": "runs"},
            {"kind": "spc", "signals": [signal]},
        ]
        config = settings(fake)
        config["collectors"] += more
        tap = free_port()
        config["listen"] = {
            "address": "127.0.0.1",
            "port": 0,
            "tap": {"address": "127.0.0.1", "port": tap},
        }
        yield start_sidecar(config, "--web.enable-lifecycle"), tap


def test_a_page_of_another_site_can_send_nothing(site, browser, watched) -> None:
    sidecar, tap = watched
    page = browser.new_page()
    page.goto(site)
    attempts = {
        f"http://127.0.0.1:{tap}/v2/models/m/infer": BODY,
        f"http://127.0.0.1:{tap}/api/v1/spc/acknowledge": ACKNOWLEDGEMENT,
        f"http://127.0.0.1:{tap}/v1/runs": RUN,
        f"http://127.0.0.1:{tap}/v1/capacity": CAPACITY,
        f"http://evil.example:{tap}/v1/runs": RUN,
        f"http://127.0.0.1:{sidecar.port}/-/reload": BODY,
    }
    for url, body in attempts.items():
        assert page.evaluate(ATTEMPT, [url, body]) == "sent"
    text = sidecar.get("/metrics").body.decode()
    assert 'admission_refused_total{listener="tap",reason="cross_site"} 5' in text
    assert 'admission_refused_total{listener="web",reason="cross_site"} 1' in text
    assert 'tap_requests_total{outcome="accepted"' not in text
    assert "event=reloaded" not in sidecar.log
    assert "spc_acknowledged" not in sidecar.log
    assert "triton_run_info{" not in text
    assert "triton_capacity_requests_per_second{" not in text


def test_a_name_that_was_rebound_reads_nothing(browser, watched) -> None:
    sidecar, _ = watched
    page = browser.new_page()
    answer = page.goto(f"http://evil.example:{sidecar.port}/api/v1/status")
    assert answer.status == 403
    assert "listen.hosts" in answer.text()
    answer = page.goto(f"http://localhost:{sidecar.port}/api/v1/status")
    assert answer.status == 200
