"""Findings at their limits: versions with known defects, and where each must hold its tongue."""

from __future__ import annotations

from dataclasses import replace

import pytest
from audit_evidence import (
    MS,
    WELL,
    configured,
    having,
    other_server,
    page,
    pairs,
    probed,
    requests,
    server,
    statistics,
    tracing,
)

from exporter.commands.audit.audit_evidence import Paired, rise
from exporter.commands.audit.audit_power import Taken
from exporter.commands.audit.checks import conclude, versions

# Versions.


@pytest.mark.parametrize("bad", versions.KNOWN_BAD, ids=lambda bad: bad.id)
def test_a_known_defect_is_told_below_the_version_that_fixed_it_and_not_from_it(bad):
    def ids(version):
        text = ".".join(map(str, version))
        found = conclude(having(inventory=server(version=text)))
        return {f.id for f in found if f.id.endswith(bad.id)}

    major, minor, patch = bad.fixed_in
    assert ids((major, minor - 1, 9)) == {f"version-{bad.id}"}
    assert ids((major, minor, patch)) == set()
    assert ids((major, minor + 1, 0)) == set()


@pytest.mark.parametrize(
    ("changes", "severity"),
    [
        ({"trace_rate": "1"}, "warning"),
        ({"trace_rate": "1000"}, "warning"),
        ({"trace_level": "OFF"}, "info"),
    ],
)
def test_the_tracing_crash_warns_at_any_rate_and_only_where_traces_are_taken(
    changes, severity
):
    old = replace(tracing(**changes), inventory=server(version="2.51.0"))
    (found,) = [f for f in conclude(old) if f.id == "version-tracing-crash"]
    assert found.severity == severity


# Where a finding must hold its tongue.


def test_what_another_server_does_not_have_is_no_fault():
    ids = {f.id for f in conclude(other_server())}
    assert not ids & {"statistics-unreadable", "tracing-unknown"}
    assert not {one for one in ids if one.startswith("version-")}
    away = other_server(statistics="UNAVAILABLE: refused")
    assert "statistics-unreadable" in {f.id for f in conclude(away)}


def test_traces_that_go_to_a_collector_fill_no_buffer():
    evidence = tracing(log_frequency="0", trace_mode="opentelemetry")
    assert "trace-buffer-unbounded" not in {f.id for f in conclude(evidence)}


def test_a_wait_that_is_the_batchers_own_delay_gets_the_advice_for_it():
    evidence = configured(requests(queue=5 * MS), delay=6000)
    (found,) = [f for f in conclude(evidence) if f.id == "queue-exceeds-compute"]
    assert "max_queue_delay" in found.advice


def test_a_delay_that_nobody_feels_is_no_warning():
    (found,) = [
        f
        for f in conclude(configured(requests(), delay=100))
        if f.id == "delay-without-batches"
    ]
    assert found.severity == "info"


def test_a_wait_with_full_batches_asks_for_larger_ones():
    (found,) = [
        f
        for f in conclude(requests(800, batch=8, queue=5 * MS))
        if f.id == "queue-exceeds-compute"
    ]
    assert "raise max_batch_size" in found.advice


def test_more_instances_share_the_work():
    busy = requests(600, infer=9 * MS)
    assert "instances-saturated" in {f.id for f in conclude(busy)}
    shared = configured(busy, instances=2)
    assert "instances-saturated" not in {f.id for f in conclude(shared)}


def test_an_idle_gpu_may_well_read_no_utilisation():
    gauges = {"nv_gpu_power_usage": 60, "nv_gpu_utilization": 0}
    pages = {"first_page": page(0.0, **gauges), "last_page": page(9.0, **gauges)}
    idle = having(**pages, second=WELL.first)
    assert "gpu-gauge-latched" not in {f.id for f in conclude(idle)}
    busy = replace(requests(600, infer=5 * MS), **pages)
    assert "gpu-gauge-latched" in {f.id for f in conclude(busy)}


def test_one_request_held_up_by_a_busy_host_makes_no_probe_unlike_production():
    late = (*pairs(), Paired(0.2, 0.19, 0.19))
    evidence = having(probes=(probed(paired=late),))
    assert "probe-like-production" in {f.id for f in conclude(evidence)}


def test_a_rise_over_a_reload_is_none():
    assert rise(statistics(100), statistics(3)) is None
    assert rise(statistics(100), statistics(103)) == statistics(3)


def test_energy_says_what_it_was_read_from_and_that_a_model_is_no_measurement():
    measured = having(power=(Taken("gpu", "nvml", 1500.0, 5.0, known=False),))
    modelled = having(power=(Taken("host", "model", 200.0, 5.0, known=True),))
    (gpu,) = [f for f in conclude(measured) if f.id == "energy-gpu"]
    (host,) = [f for f in conclude(modelled) if f.id == "energy-host"]
    assert gpu.title.startswith("The boards take at least 300 W")
    assert host.title.startswith("The host takes 40 W by the configured model")
    assert "not a measurement" in host.advice
