"""Every finding: the evidence in which it is told, and that it is not told otherwise."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib import import_module
from pkgutil import iter_modules

import pytest
from audit_evidence import (
    KEY,
    MS,
    OFF,
    OK,
    SPEC,
    WELL,
    configured,
    cpu,
    failed,
    having,
    other_server,
    page,
    pairs,
    probed,
    rare,
    requests,
    server,
    tracing,
)

from exporter.access.probe_base import Verdict
from exporter.commands.audit import checks
from exporter.commands.audit.audit_command import rendered
from exporter.commands.audit.audit_evidence import Disagreement, Evidence
from exporter.commands.audit.audit_power import Taken
from exporter.commands.audit.audit_report import Report, report_of
from exporter.commands.audit.checks import CHECKS, FAMILIES, conclude, versions
from exporter.commands.audit.finding import FAILING, SEVERITIES, most_severe_first
from exporter.commands.audit.finding_kinds import KINDS
from exporter.config.configuration import TargetSettings
from exporter.triton.model import IndexEntry

BAD = Verdict("model_error", detail="INTERNAL: it broke")
DEAD = Verdict("model_error", detail="INTERNAL: Stub process 'm_0' is not healthy.")
MISFIT = Verdict("invalid", detail="INVALID_ARGUMENT: unexpected shape")

SCENARIOS = {
    "server-unreachable": ("critical", Evidence(no_answer="UNAVAILABLE: refused")),
    "server-not-ready": ("critical", having(inventory=failed("bad", ready=False))),
    "readiness-differs": ("warning", having(http_ready=False)),
    "http-silent": ("warning", having(http_ready=None, problems={"http": "refused"})),
    "dead-backend-stub": ("critical", having(probes=(probed(DEAD, DEAD),))),
    "ready-but-failing": ("critical", having(probes=(probed(BAD),))),
    "ready-but-unreadable": ("critical", having(unreadable={("n", "1"): "NOT_FOUND"})),
    "model-not-ready": ("warning", having(inventory=failed("no weights"))),
    "models-unloaded": ("info", having(inventory=server(IndexEntry("n", "", "")))),
    "fails-sometimes": ("warning", having(probes=(probed(OK, BAD, OK),))),
    "fails-over-one-protocol": (
        "warning",
        having(probes=(probed(), probed(BAD, protocol="http"))),
    ),
    "production-fails": ("critical", requests(100, fail=300)),
    "probe-does-not-fit": ("unknown", having(probes=(probed(MISFIT),))),
    "not-asked": ("unknown", having(not_asked=7)),
    "no-probe": ("unknown", having(probes=())),
    "no-models": ("unknown", having(inventory=server(models={}), probes=())),
    "models-answer": ("ok", WELL),
    "time-shares": ("info", WELL),
    "no-production-traffic": ("info", having(second=WELL.first)),
    "not-enough-data": ("unknown", requests(5)),
    "statistics-unreadable": (
        "warning",
        having(first={}, second={}, last={}, problems={"statistics": "refused"}),
    ),
    "copies-dominate": ("warning", requests(copy_in=MS, infer=MS, out=MS)),
    "network-share": (
        "warning",
        having(probes=(probed(paired=pairs(client=0.021)),)),
    ),
    "network-unknown": ("info", having(probes=(probed(),))),
    "queue-exceeds-compute": ("warning", requests(queue=5 * MS)),
    "delay-without-batches": (
        "warning",
        configured(requests(queue=5 * MS), delay=5000),
    ),
    "batching-off": ("info", configured(requests(), batching=False)),
    "batch-size": ("info", WELL),
    "instances-saturated": ("warning", requests(600, infer=9 * MS)),
    "headroom": ("info", WELL),
    "headroom-unknown": ("info", having(configs={})),
    "cpu": ("info", cpu(0.99, 0.5)),
    "cpu-full": ("warning", cpu(0.95, 0.99)),
    "energy": ("info", WELL),
    "energy-unknown": ("unknown", having(last_page=page(9.0))),
    "energy-gpu": (
        "info",
        having(power=(Taken("gpu", "nvml", 1500.0, 5.0, known=True),)),
    ),
    "energy-host": (
        "info",
        having(power=(Taken("host", "model", 200.0, 5.0, known=True),)),
    ),
    "probe-like-production": ("ok", WELL),
    "probe-unlike-production": ("warning", requests(infer=9 * MS, count=100)),
    "metrics-off": ("warning", having(last_page=None, problems={"metrics": "refused"})),
    "counters-frozen-at-zero": ("warning", having(last_page=page(9.0, success=0))),
    "metrics-disagree": (
        "warning",
        having(disagreements=(Disagreement(KEY, "success", 0.5),)),
    ),
    "metrics-agree": ("ok", WELL),
    "gpu-gauge-latched": (
        "warning",
        having(
            first_page=page(0.0, nv_gpu_power_usage=0),
            last_page=page(9.0, nv_gpu_power_usage=0),
        ),
    ),
    "energy-counter-frozen": (
        "warning",
        having(last_page=page(9.0, nv_gpu_power_usage=80, nv_energy_consumption=1000)),
    ),
    "summaries-on": (
        "warning",
        having(last_page=page(9.0, nv_inference_request_summary_us=1)),
    ),
    "first-response-histogram": (
        "info",
        having(last_page=page(9.0, nv_inference_first_response_histogram_ms_bucket=1)),
    ),
    "trace-buffer-unbounded": ("critical", tracing(log_frequency="0")),
    "trace-tensors-on": ("warning", tracing(trace_level="TENSORS")),
    "trace-rate-starves": ("info", rare()),
    "tracing-unknown": (
        "unknown",
        having(trace_settings={}, problems={"traces": "restricted"}),
    ),
    "tracing-off": ("info", having(trace_settings={"": OFF, "m": OFF})),
    "not-triton": ("info", other_server()),
    "version-unknown": ("unknown", having(inventory=server(version="2.x"))),
    "response-cache-on": (
        "info",
        having(inventory=server(spec=replace(SPEC, response_cache=True))),
    ),
    "model-control-explicit": (
        "info",
        having(inventory=server(IndexEntry("n", "1", "UNAVAILABLE", "unloaded"))),
    ),
    "readiness-not-strict": ("info", having(inventory=failed("no weights"))),
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


def test_every_kind_of_finding_has_its_scenario():
    bad = {f"version-{bad.id}" for bad in versions.KNOWN_BAD}
    assert KINDS.keys() == SCENARIOS.keys() | bad


def test_a_healthy_server_has_nothing_at_warning_or_unknown():
    assert {
        f.id for f in conclude(WELL) if f.severity in {*FAILING, "unknown"}
    } == set()


def test_requests_between_a_page_and_the_statistics_after_it_freeze_no_counter():
    evidence = having(first_page=page(0.0, success=0))
    assert not [f for f in conclude(evidence) if f.id == "counters-frozen-at-zero"]


def test_every_module_of_checks_joins_with_all_its_functions():
    modules = {import_module(f"{checks.__name__}.{m.name}") for m in iter_modules(checks.__path__)}  # fmt: skip
    assert modules == set(FAMILIES)
    assert len(CHECKS) == len(set(CHECKS)) == sum(len(f.CHECKS) for f in FAMILIES)


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: f"{c.__module__.rpartition('.')[2]}.{c.__name__}")  # fmt: skip
def test_a_check_is_pure_and_says_nothing_alarming_of_no_evidence(check):
    assert not {f.id for f in check(Evidence()) if f.severity in FAILING}
    for _, evidence in SCENARIOS.values():
        first = list(check(evidence))
        assert first == list(check(evidence))
        for finding in first:
            assert re.fullmatch(r"[a-z]+(-[a-z]+)*", finding.id)
            assert finding.severity in SEVERITIES
            assert finding.title
            for measure in finding.evidence:
                assert measure.name
                assert not isinstance(measure.value, float) or measure.value == measure.value  # fmt: skip


def test_findings_come_most_severe_first():
    _, evidence = SCENARIOS["ready-but-failing"]
    order = [
        SEVERITIES.index(f.severity) for f in most_severe_first(conclude(evidence))
    ]
    assert order == sorted(order)
    assert order[0] == 0
