"""Findings at their limits: from where on each is told, and where it must not be."""

from __future__ import annotations

from dataclasses import replace

import pytest
from audit_scenes import (
    KEY,
    MS,
    OFF,
    OK,
    SPEC,
    WELL,
    answers,
    configured,
    having,
    other_server,
    page,
    requests,
    server,
    statistics,
    tracing,
)

from exporter.access.probe_base import Verdict
from exporter.commands.audit.audit_command import conclude
from exporter.commands.audit.audit_evidence import (
    MOST_TRACE_SETTINGS,
    NO_SERIES,
    NOT_CONFIGURED,
)
from exporter.commands.audit.model_seen import rise
from exporter.triton.protocol_types import IndexEntry


def ids(evidence):
    return {finding.id for finding in conclude(evidence)}


@pytest.mark.parametrize(
    ("defect", "last_bad", "fixed_in"),
    [
        ("version-tracing-crash", "2.56.9", "2.57.0"),
        ("version-remote-code-execution", "2.59.0", "2.59.1"),
    ],
)
def test_a_known_defect_is_told_below_the_version_that_fixed_it_and_not_from_it(
    defect, last_bad, fixed_in
):
    assert defect in ids(having(inventory=server(version=last_bad)))
    assert defect not in ids(having(inventory=server(version=fixed_in)))
    assert defect not in ids(having(inventory=server(version="3.0.0")))


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


def test_what_another_server_does_not_have_is_no_fault():
    found = ids(other_server())
    assert not found & {"statistics-unreadable", "tracing-unknown"}
    assert not {one for one in found if one.startswith("version-")}
    found = ids(replace(other_server(metrics=NO_SERIES), last_page=page(9.0)))
    assert not found & {"metrics-off"}
    assert "metrics-off" in ids(having(problems={"metrics": NO_SERIES}))
    away = other_server(statistics="UNAVAILABLE: refused")
    assert "statistics-unreadable" in ids(away)


def test_a_part_that_the_config_leaves_out_is_no_fault():
    without = having(problems={"metrics": NOT_CONFIGURED, "http": NOT_CONFIGURED})
    assert "http-silent" not in ids(without)
    (found,) = [f for f in conclude(without) if f.id == "metrics-off"]
    assert found.severity == "info"


def test_traces_that_go_to_a_collector_fill_no_buffer():
    evidence = tracing(log_frequency="0", trace_mode="opentelemetry")
    assert "trace-buffer-unbounded" not in ids(evidence)


def test_without_a_probe_readiness_is_unknown():
    assert "not-asked" in ids(having(answers=()))


def test_a_delay_that_nobody_feels_is_no_finding():
    idle = configured(requests(), max_queue_delay_us=5000)
    assert "delay-without-batches" not in ids(idle)


def test_more_instances_share_the_work():
    busy = requests(600, infer=9 * MS)
    assert "instances-saturated" in ids(busy)
    assert "instances-saturated" not in ids(configured(busy, instances=2))


def test_few_requests_in_the_window_claim_no_headroom():
    few = having(first={KEY: statistics(100)}, second={KEY: statistics(105)})
    assert not ids(few) & {"headroom", "instances-saturated"}
    assert "no-production-traffic" in ids(few)
    # But few that last long are enough to see that there is no room.
    long = {"infer": 700 * MS}
    slow = having(
        first={KEY: statistics(100, **long)}, second={KEY: statistics(108, **long)}
    )
    assert "instances-saturated" in ids(slow)
    assert not ids(slow) & {"headroom", "no-production-traffic"}
    unknown = configured(WELL, instances=0)
    assert "no-production-traffic" in ids(unknown)
    assert not ids(unknown) & {"headroom", "instances-saturated"}


def test_a_model_that_is_loading_has_not_failed():
    loading = having(inventory=server(IndexEntry("n", "1", "LOADING", "")))
    assert "readiness-not-strict" not in ids(loading)
    severities = {f.id: f.severity for f in conclude(loading)}
    assert severities["model-not-ready"] == "info"


def test_of_very_many_models_trace_settings_are_read_of_some():
    specs = {(f"m{n}", "1"): SPEC for n in range(MOST_TRACE_SETTINGS + 5)}
    read = {f"m{n}": OFF for n in range(MOST_TRACE_SETTINGS)}
    many = having(inventory=server(models=specs), trace_settings={"": OFF, **read})
    assert many.traces_unread == 0
    del read["m0"]
    less = having(inventory=server(models=specs), trace_settings={"": OFF, **read})
    assert less.traces_unread == 1


def test_requests_after_the_first_statistics_freeze_no_counter():
    began = having(first={KEY: statistics(0)}, last_page=page(9.0, success=0))
    assert "counters-frozen-at-zero" not in ids(began)


def test_a_tensor_refused_now_and_then_is_unknown_and_no_failure():
    mixed = having(answers=(answers(OK, Verdict("invalid", detail="shape")),))
    assert "probe-does-not-fit" in ids(mixed)
    assert not ids(mixed) & {"fails-sometimes", "fails-over-one-protocol"}


def test_settings_that_could_not_be_read_in_time_are_unknown_and_not_off():
    found = ids(having(trace_settings={"": OFF}))
    assert "tracing-unknown" in found
    assert "tracing-off" not in found


def test_energy_of_which_one_gpu_counts_nothing_is_unknown():
    stuck = having(
        last_page=page(9.0, nv_gpu_power_usage=80, nv_energy_consumption=1000)
    )
    assert "energy" not in ids(stuck)
    (found,) = [f for f in conclude(WELL) if f.id == "energy"]
    measured = {(m.name, m.unit): m.value for m in found.evidence}
    assert (measured["energy", "J"], measured["energy", "J an inference"]) == (720, 1.0)


def test_a_rise_over_a_reload_is_none():
    assert rise(statistics(100), statistics(3)) is None
    risen = rise(statistics(100), statistics(103))
    assert (risen.success, risen.queue) == (statistics(3).success, statistics(3).queue)


def test_a_stream_that_stalls_is_no_failure():
    stalled = Verdict("stalled", 0.9, detail="response 4 came late")
    found = ids(having(answers=(answers(stalled, stalled),)))
    assert "streams-stall" in found
    assert not found & {"ready-but-failing", "fails-sometimes"}
    assert "models-answer" in found


@pytest.mark.parametrize(
    "times", [{"queue": 5 * MS}, {"copy_in": MS, "out": MS}, {"infer": 9 * MS}]
)
def test_nothing_is_concluded_from_the_times_of_a_decoupled_model(times):
    of_times = {
        "queue-exceeds-compute",
        "copies-dominate",
        "instances-saturated",
        "headroom",
        "no-production-traffic",
        "not-enough-data",
    }
    assert ids(requests(600, **times)) & of_times
    found = ids(configured(requests(600, **times), decoupled=True))
    assert found & {*of_times, "decoupled-counters"} == {"decoupled-counters"}
    assert "decoupled-counters" not in ids(requests(600, **times))
