"""Every finding: the evidence in which it is told, and that it is not told otherwise."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from audit_scenes import (
    MS,
    OFF,
    OK,
    WELL,
    answers,
    configured,
    failed,
    having,
    other_server,
    page,
    requests,
    server,
    tracing,
)

from exporter.access.probe_base import Verdict
from exporter.commands.audit.audit_command import Report, conclude, rendered, report_of
from exporter.commands.audit.audit_evidence import Evidence, Page
from exporter.commands.audit.finding import FAILING, SEVERITIES
from exporter.commands.audit.model_checks import LISTED_CHECKS, MODEL_CHECKS
from exporter.commands.audit.server_checks import SERVER_CHECKS, UNREACHABLE
from exporter.config.configuration import TargetSettings
from exporter.triton.protocol_types import IndexEntry, ServerInfo

CHECKS = (UNREACHABLE, *SERVER_CHECKS, *LISTED_CHECKS, *MODEL_CHECKS)
BAD = Verdict("model_error", detail="INTERNAL: it broke")
DEAD = Verdict("model_error", detail="INTERNAL: Stub process 'm_0' is not healthy.")
STALLED = Verdict("stalled", 0.9, detail="response 4 came late")
MISFIT = Verdict("invalid", detail="INVALID_ARGUMENT: unexpected shape")

SCENARIOS = {
    "server-unreachable": ("critical", Evidence(no_answer="UNAVAILABLE: refused")),
    "server-not-ready": ("critical", having(inventory=failed("bad", ready=False))),
    "http-silent": ("warning", having(problems={"http": "refused"})),
    "readiness-not-strict": ("info", having(inventory=failed("no weights"))),
    "not-asked": ("unknown", having(not_asked=7)),
    "no-models": ("unknown", having(inventory=server(models={}), answers=())),
    "models-answer": ("ok", WELL),
    "statistics-unreadable": (
        "warning",
        having(first={}, second={}, problems={"statistics": "refused"}),
    ),
    "metrics-off": ("warning", having(problems={"metrics": "refused"})),
    "summaries-on": (
        "warning",
        having(last_page=page(9.0, nv_inference_request_summary_us_count=1)),
    ),
    "energy": ("info", WELL),
    "energy-unknown": ("unknown", having(last_page=page(9.0, nv_gpu_power_usage=0))),
    "tracing-unknown": (
        "unknown",
        having(trace_settings={}, problems={"traces": "restricted"}),
    ),
    "tracing-off": ("info", having(trace_settings={"": OFF, "m": OFF})),
    "not-triton": ("info", other_server()),
    "version-unknown": ("unknown", having(inventory=server(version="2.x"))),
    "version-tracing-crash": ("warning", having(inventory=server(version="2.56.0"))),
    "version-remote-code-execution": (
        "warning",
        having(inventory=server(version="2.59.0")),
    ),
    "ready-but-unreadable": (
        "critical",
        having(
            inventory=server(IndexEntry("n", "1", "READY")),
            unreadable={("n", "1"): "NOT_FOUND"},
        ),
    ),
    "model-not-ready": ("warning", having(inventory=failed("no weights"))),
    "dead-backend-stub": ("critical", having(answers=(answers(DEAD, DEAD),))),
    "ready-but-failing": ("critical", having(answers=(answers(BAD),))),
    "fails-over-one-protocol": (
        "warning",
        having(answers=(answers(), answers(BAD, protocol="http"))),
    ),
    "fails-sometimes": ("warning", having(answers=(answers(OK, BAD, OK),))),
    "streams-stall": ("warning", having(answers=(answers(OK, STALLED, STALLED),))),
    "probe-does-not-fit": ("unknown", having(answers=(answers(MISFIT),))),
    "production-fails": ("critical", requests(100, fail=300)),
    "copies-dominate": ("warning", requests(copy_in=MS, infer=MS, out=MS)),
    "queue-exceeds-compute": ("warning", requests(queue=5 * MS)),
    "delay-without-batches": (
        "warning",
        configured(requests(queue=5 * MS), max_queue_delay_us=5000),
    ),
    "batching-off": ("info", configured(requests(), dynamic_batching=False)),
    "instances-saturated": ("warning", requests(600, infer=9 * MS)),
    "headroom": ("info", WELL),
    "no-production-traffic": ("info", having(second=WELL.first)),
    "not-enough-data": ("unknown", requests(5)),
    "counters-frozen-at-zero": ("warning", having(last_page=page(9.0, success=0))),
    "trace-buffer-unbounded": ("critical", tracing(log_frequency="0")),
    "decoupled-counters": ("info", configured(requests(), decoupled=True)),
    "trace-tensors-on": ("warning", tracing(trace_level="TENSORS")),
}


@pytest.mark.parametrize("finding_id", SCENARIOS)
def test_a_finding_is_told_with_its_severity_where_its_evidence_is(finding_id):
    severity, evidence = SCENARIOS[finding_id]
    found = [f for f in conclude(evidence) if f.id == finding_id]
    assert {f.severity for f in found} == {severity}
    if severity in FAILING:
        assert all(f.advice and f.evidence for f in found)


@pytest.mark.parametrize("finding_id", SCENARIOS)
def test_every_finding_can_be_told_in_every_format(finding_id):
    _, evidence = SCENARIOS[finding_id]
    report = report_of(
        evidence,
        TargetSettings(),
        started_at="2026-11-21T12:00:00Z",
        seconds=9.5,
        tritonwatch_version="0",
    )
    assert Report.model_validate_json(report.model_dump_json()) == report
    lines = rendered(report, "text").splitlines()
    assert max(map(len, lines)) <= 100
    assert f"[{finding_id}]" in " ".join(lines)
    assert f">{finding_id}<" in rendered(report, "html")


OF_TRITON = re.compile("Triton|server#|nvidia|--(?!duration)")


@pytest.mark.parametrize("finding_id", SCENARIOS)
def test_nothing_that_only_triton_has_is_advised_for_another_server(finding_id):
    _, evidence = SCENARIOS[finding_id]
    no_page = {"metrics": "the answer has none of Triton's series"}
    other = replace(
        evidence,
        inventory=replace(evidence.inventory, info=ServerInfo("mlserver", "1.7.1")),
        problems=dict(evidence.problems) | no_page,
        first_page=Page(),
        last_page=Page(),
    )
    for found in conclude(other):
        if found.id != "not-triton":
            said = f"{found.title} {found.advice} {found.reference}"
            assert not OF_TRITON.search(said), found


def test_another_server_without_tritons_metrics_page_has_one_finding_about_it():
    found = conclude(other_server(metrics="the answer has none of Triton's series"))
    by_id = {f.id: f for f in found}
    assert "metrics-off" not in by_id
    assert {m.name for m in by_id["not-triton"].evidence} == {
        "statistics",
        "traces",
        "metrics",
    }
    assert {f.severity for f in found} <= {"info", "unknown", "ok"}


def test_every_check_has_its_scenario_and_an_id_of_its_own():
    ids = [check.id for check in CHECKS]  # type: ignore[attr-defined]
    assert set(ids) == SCENARIOS.keys()
    assert len(ids) == len(set(ids))


def test_a_healthy_server_has_nothing_at_warning_or_unknown():
    assert {
        f.id for f in conclude(WELL) if f.severity in {*FAILING, "unknown"}
    } == set()


def test_nothing_alarming_is_said_of_no_evidence():
    assert not [f for f in conclude(Evidence()) if f.severity in FAILING]


def test_findings_come_most_severe_first():
    _, evidence = SCENARIOS["ready-but-failing"]
    order = [SEVERITIES.index(f.severity) for f in conclude(evidence)]
    assert order == sorted(order)
    assert order[0] == 0
