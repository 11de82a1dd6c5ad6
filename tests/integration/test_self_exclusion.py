"""Our own requests are no production, and production is counted to the last request."""

from __future__ import annotations

import pytest

from exporter.triton.grpc import GrpcClient

pytestmark = pytest.mark.triton


def own(page, model="double"):
    return page.sum("triton_own_requests_total", model=model, outcome="success")


def successes(page, model="double"):
    return page.value("triton_requests_total", model=model, outcome="success")


def timeouts(page, model="double"):
    return page.sum("triton_probe_total", model=model, outcome="timeout")


def counted(playground, model="double"):
    """Successes as Triton itself counts them."""
    client = GrpcClient(playground.grpc)
    entries = client.statistics(timeout_seconds=5)
    client.close()
    return sum(entry.success.count for entry in entries if entry.name == model)


def settled(sidecar, expected, model="double"):
    """The page once so many requests show; no more may come later."""
    sidecar.wait(lambda p: successes(p, model) == expected)
    page = sidecar.settle(3)
    assert successes(page, model) == expected
    return page


@pytest.fixture
def eager(playground, settings, start_sidecar):
    """A sidecar that probes and looks as often as it can."""
    config = settings(playground, probe={"interval_seconds": 0.02})
    for collector in config["collectors"]:
        collector["interval_seconds"] = 0.1
    sidecar = start_sidecar(config)
    sidecar.wait(lambda p: own(p) > 0)
    return sidecar


def test_production_is_counted_to_the_last_request_among_probes(eager, traffic):
    before = own(eager.page())
    traffic.double(200)
    traffic.double(30, rows=4)
    page = settled(eager, 230)
    assert own(page) > before + 5
    assert page.value("triton_inferences_total", model="double") == 200 + 30 * 4
    assert page.value("triton_requests_total", model="double", outcome="failure") == 0
    assert successes(page, "sleepy") == 0


def test_probes_given_up_on_are_ours_when_a_thawed_server_runs_them_yet(
    playground, settings, start_sidecar
):
    probe = {"interval_seconds": 0.3, "timeout_seconds": 0.1, "linger_seconds": 0.1}
    counted_before = counted(playground)
    sidecar = start_sidecar(settings(playground, probe=probe))
    sidecar.wait(lambda p: own(p) > 0)
    before = own(sidecar.settle())
    playground.triton.freeze()
    sidecar.wait(lambda p: timeouts(p) >= 6)
    playground.triton.thaw()
    page = sidecar.wait(lambda p: own(p) >= before + 5)
    page = sidecar.settle(4)
    assert page.sum("triton_requests_total") == 0
    assert page.sum("triton_executions_total") == 0
    # They were run: Triton has counted more than was answered.
    assert counted(playground) - counted_before > own(page)


def test_probes_over_a_kill_and_a_restart_are_no_production(
    eager, playground, traffic, limits
):
    for restart in range(2):
        # A restart is seen by counters that fall: the new server must not have counted
        # more by the first look than the old one had.
        enough = own(eager.page()) + 100
        eager.wait(lambda p, enough=enough: own(p) > enough)
        playground.triton.kill()
        eager.wait(lambda p: p.value("triton_up") == 0)
        playground.triton.start()
        # At once, so that it is read together with the end of the server before.
        traffic.double(10)
        eager.wait(lambda p: p.value("triton_model_serving", model="double") == 1)
        before = own(eager.page())
        eager.wait(lambda p, b=before: own(p) > b + 20)
        sent = 10 * (restart + 1)

        # Probes that the new server refused may be any of the first requests. While the
        # calls of a model are learnt anew, some of what rose is shown later.
        def all_shown(page, sent=sent):
            unknown = page.value("triton_unattributed_requests_total", model="double")
            # Both are absent while this machine is too busy to look in time.
            return unknown is not None and successes(page) + unknown >= sent

        eager.wait(all_shown)
        page = eager.settle(3)
        assert successes(page) <= sent
        assert page.sum("triton_requests_total", model="sleepy") == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_look_at_the_watched_server_through_probe_is_no_production(
    playground, settings, start_sidecar, host
):
    target = playground.grpc.replace("127.0.0.1", host)
    config = settings(playground, multi_target={"allow": [target]}, probes=[])
    config["probes"] = [{"kind": "synthetic", "interval_seconds": 3600}]
    sidecar = start_sidecar(config)
    sidecar.wait(lambda p: len(p.values("triton_probe_success")) == 4)
    for _ in range(5):
        assert sidecar.get(f"/probe?target={target}").status == 200
    page = sidecar.settle()
    assert page.sum("triton_requests_total") == 0
    assert own(page) >= 5
