"""The real Triton's trace sampling under the sidecar's control."""

from __future__ import annotations

import signal
import time

import pytest
from traced_tritons import Sender, trace_rate, traces_config
from waiting import patience

from exporter.triton.grpc import GrpcClient

pytestmark = pytest.mark.triton

CONTROL = {"control": True, "samples_per_minute": 120}


@pytest.mark.parametrize("server", ["files_server", "spans_server"])
def test_control_sets_rates_that_follow_the_traffic_and_puts_them_back(
    server, request, settings, start_sidecar
):
    triton, _ = request.getfixturevalue(server)
    client = GrpcClient(triton.grpc)
    client.update_trace_settings("second", {"trace_rate": ["77"]}, timeout_seconds=5)
    before = {m: trace_rate(client, m) for m in ("double", "second", "")}
    config = traces_config(settings, triton, 0, **CONTROL, force=True)
    config["collectors"][-1]["interval_seconds"] = 1.0
    config["probes"] = []
    sidecar = start_sidecar(config)
    shown = "triton_trace_sampling_rate"
    sidecar.wait(lambda page: page.value(shown, model="second") == 1)
    assert trace_rate(client, "second") == (("1",), ("TIMESTAMPS",))
    sender = Sender(triton.grpc)
    deadline = time.monotonic() + patience()
    while sidecar.page().value(shown, model="double") == 1:
        assert time.monotonic() < deadline
        sender.rows("double", 20)
    rate = int(sidecar.page().value(shown, model="double"))
    assert rate > 5
    assert all(rate % divisor for divisor in range(2, rate))
    assert trace_rate(client, "double")[0] == (str(rate),)
    assert trace_rate(client, "") == before[""]
    code, _ = sidecar.end(signal.SIGTERM)
    assert code == 0
    assert {m: trace_rate(client, m) for m in ("double", "second", "")} == before
    client.update_trace_settings("second", {"trace_rate": []}, timeout_seconds=5)


def test_control_is_refused_on_a_triton_that_can_crash(
    files_server, settings, start_sidecar
):
    triton, _ = files_server
    client = GrpcClient(triton.grpc)
    before = trace_rate(client, "double")
    sidecar = start_sidecar(traces_config(settings, triton, 0, **CONTROL))
    active = "tritonwatch_trace_control_active"
    sidecar.wait(lambda page: page.value(active) == 0)
    assert "server#7795" in sidecar.log
    assert sidecar.page().all("triton_trace_sampling_rate") == []
    assert trace_rate(client, "double") == before


def test_a_killed_controller_is_undone_by_the_next(
    files_server, settings, start_sidecar, tmp_path
):
    triton, _ = files_server
    client = GrpcClient(triton.grpc)
    client.update_trace_settings("double", {"trace_rate": ["77"]}, timeout_seconds=5)
    journal = tmp_path / "journal.json"
    config = traces_config(
        settings, triton, 0, **CONTROL, force=True, journal=str(journal)
    )
    sidecar = start_sidecar(config)
    sidecar.wait(lambda page: page.all("triton_trace_sampling_rate"))
    assert trace_rate(client, "double")[0] != ("77",)
    sidecar.end(signal.SIGKILL)
    assert journal.exists()
    again = start_sidecar(config)
    again.wait(lambda page: page.all("triton_trace_sampling_rate"))
    again.end(signal.SIGTERM)
    assert trace_rate(client, "double")[0] == ("77",)
    assert not journal.exists()
    client.update_trace_settings("double", {"trace_rate": []}, timeout_seconds=5)


def test_a_reload_puts_the_rates_back_before_the_next_settings_count(
    files_server, settings, start_sidecar
):
    triton, _ = files_server
    client = GrpcClient(triton.grpc)
    client.update_trace_settings("double", {"trace_rate": ["77"]}, timeout_seconds=5)
    config = traces_config(settings, triton, 0, **CONTROL, force=True)
    config["probes"] = []
    sidecar = start_sidecar(config)
    sidecar.wait(lambda page: page.all("triton_trace_sampling_rate"))
    collector = config["collectors"][-1]
    collector["samples_per_minute"] = 600
    sidecar.write(config)
    sidecar.process.send_signal(signal.SIGHUP)
    sidecar.wait(lambda page: not page.all("triton_trace_sampling_rate"))
    sidecar.wait(lambda page: page.all("triton_trace_sampling_rate"))
    assert trace_rate(client, "double")[0] == ("1",)
    collector["control"] = False
    sidecar.write(config)
    sidecar.process.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + patience()
    while trace_rate(client, "double")[0] != ("77",):
        assert time.monotonic() < deadline, sidecar.log
        time.sleep(0.05)
    sidecar.wait(lambda page: not page.all("triton_trace_sampling_rate"))
    client.update_trace_settings("double", {"trace_rate": []}, timeout_seconds=5)
