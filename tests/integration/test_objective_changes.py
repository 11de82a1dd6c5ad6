"""Objectives that change while Triton is unreachable count nothing that was before."""

from __future__ import annotations

import signal

import pytest

pytestmark = pytest.mark.triton

EVENTS = "triton_slo_events_total"


def objective(ratio: float) -> dict[str, object]:
    return {"kind": "availability", "name": "answers", "objective_ratio": ratio}


def good(page):
    return page.value(EVENTS, slo="answers", outcome="good")


def judged(sidecar):
    """Wait until the objectives have been judged twice more."""
    stamp = "tritonwatch_collector_last_success_timestamp_seconds"
    seen: set[float | None] = set()
    sidecar.wait(
        lambda page: seen.add(page.value(stamp, collector="slo")) or len(seen) > 2
    )


def test_an_objective_that_changes_during_an_outage_counts_only_what_follows(
    playground, settings, start_sidecar, traffic
) -> None:
    config = settings(playground, probes=[], slos=[objective(0.9)])
    sidecar = start_sidecar(config)
    # What was sent before the first reading is not counted.
    sidecar.wait(lambda page: page.all("triton_requests_total"))
    traffic.double(400)
    sidecar.wait(lambda page: good(page) == 400)
    playground.triton.kill()
    sidecar.wait(
        lambda page: (
            page.value("triton_up") == 0 and not page.all("triton_requests_total")
        )
    )
    config["slos"] = [objective(0.99)]
    sidecar.write(config)
    sidecar.process.send_signal(signal.SIGHUP)
    sidecar.wait(
        lambda page: page.value("triton_slo_objective_ratio", slo="answers") == 0.99
    )
    playground.triton.start()
    sidecar.wait(lambda page: page.all("triton_requests_total"))
    judged(sidecar)
    traffic.double(7)
    sidecar.wait(lambda page: good(page) >= 7)
    judged(sidecar)
    assert good(sidecar.page()) == 7
