"""Every finding: the evidence in which it is told, and that it is not told otherwise."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

from exporter.audit import checks, html, text
from exporter.audit.checks import CHECKS, FAMILIES, conclude, versions
from exporter.audit.evidence import (
    Disagreement,
    Evidence,
    ModelConfig,
    Page,
    Paired,
    Probed,
    rise,
)
from exporter.audit.finding import FAILING, SEVERITIES, most_severe_first
from exporter.audit.power import Taken
from exporter.audit.report import Report, report_of
from exporter.config import TargetSettings
from exporter.inventory import Inventory
from exporter.probes.base import Target, Verdict
from exporter.triton.model import (
    BatchStatistics,
    Duration,
    IndexEntry,
    ModelSpec,
    ModelStatistics,
    ServerInfo,
    TensorSpec,
)

KEY = ("m", "1")
X = TensorSpec("x", "FP32", (-1, 4))
SPEC = ModelSpec("m", "1", (X,), (X,), max_batch_size=8)
MS = 1_000_000
OK = Verdict("ok", 0.0011)
OFF = {"trace_level": ("OFF",), "trace_rate": ("1000",), "trace_mode": ("triton",)}
ON = {
    "trace_level": ("TIMESTAMPS",),
    "trace_rate": ("1000",),
    "trace_count": ("-1",),
    "log_frequency": ("100",),
    "trace_mode": ("triton",),
}


def statistics(
    requests=0, *, batch=1, queue=0, copy_in=0, infer=MS, out=0, fail=0, key=KEY
):
    """Counters of so many requests of one inference; times are ns a request."""
    ran = requests // batch
    phases = [Duration(requests, requests * ns) for ns in (queue, copy_in, infer, out)]
    return ModelStatistics(
        *key,
        requests,
        ran,
        Duration(requests, sum(p.ns for p in phases)),
        Duration(fail, fail * MS),
        *phases,
        batches=(
            BatchStatistics(
                batch,
                *(Duration(ran, ran * ns) for ns in (copy_in, infer, out)),
            ),
        ),
    )


def page(at, success=100, **gauges):
    """A metrics page of the one model, with gauges of one GPU."""
    model = {"model": "m", "version": "1"}
    series = {
        name: ((model, float(success)),)
        for name in (
            "nv_inference_request_success",
            "nv_inference_count",
            "nv_inference_exec_count",
        )
    }
    gpu = {"gpu_uuid": "GPU-1"}
    return Page(at, series | {n: ((gpu, float(v)),) for n, v in gauges.items()})


def probed(*verdicts, protocol="grpc", paired=()):
    return Probed(Target(KEY, protocol), verdicts or (OK,), paired)


def pairs(client=0.0011, server=0.001, compute=0.001):
    return (Paired(client, server, compute),) * 5


def server(*index, spec=SPEC, ready=True, version="2.60.0", models=None):
    entries = (IndexEntry("m", "1", "READY"), *index)
    models = {KEY: spec} if models is None else models
    return Inventory(
        up=True,
        ready=ready,
        info=ServerInfo("triton", version),
        index=entries,
        models=models,
    )


WELL = Evidence(
    inventory=server(),
    http_ready=True,
    window_seconds=6.0,
    configs={KEY: ModelConfig(True, 0, 1, on_gpu=True)},
    first={KEY: statistics(100)},
    second={KEY: statistics(700)},
    last={KEY: statistics(720)},
    first_page=page(0.0, nv_gpu_power_usage=70, nv_energy_consumption=1000),
    last_page=page(9.0, nv_gpu_power_usage=80, nv_energy_consumption=1720),
    disagreements=(Disagreement(KEY, "success", 0.0),),
    trace_settings={"": ON, "m": ON},
    probes=(probed(paired=pairs()),),
)
"""A healthy server with one busy model."""


def having(**changes):
    return replace(WELL, **changes)


def requests(count=600, **of_each):
    """The evidence with that traffic in the window, and none before."""
    second = {KEY: statistics(count, **of_each)}
    return having(first={KEY: statistics()}, second=second, last=second)


def configured(evidence, *, batching=True, delay=0, instances=1):
    config = ModelConfig(batching, delay, instances, on_gpu=True)
    return replace(evidence, configs={KEY: config})


def tracing(**changes):
    settings = {**ON, **{name: (value,) for name, value in changes.items()}}
    return having(trace_settings={"": settings, "m": settings})


def rare():
    """Two models share one trace rate; one of them gets a request a second."""
    other = ("rare", "1")
    models = {KEY: SPEC, other: replace(SPEC, name="rare")}
    return having(
        inventory=server(IndexEntry(*other, "READY"), models=models),
        first={KEY: statistics(100), other: statistics(0, key=other)},
        second={KEY: statistics(999_999), other: statistics(6, key=other)},
        trace_settings={"": ON, "m": ON, "rare": ON},
    )


def cpu(first, last):
    return having(
        first_page=page(0.0, nv_cpu_utilization=first),
        last_page=page(9.0, nv_cpu_utilization=last),
    )


def failed(text, **of_server):
    return server(IndexEntry("n", "1", "UNAVAILABLE", text), **of_server)


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
    "counters-frozen-at-zero": ("warning", having(first_page=page(0.0, success=0))),
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
    lines = text.render(report).splitlines()
    assert max(map(len, lines)) <= 100
    assert f"[{finding_id}]" in " ".join(lines)
    assert f">{finding_id}<" in html.render(report)


def test_every_finding_of_the_source_has_its_scenario():
    folder = Path(checks.__file__).parent
    source = "".join(path.read_text("utf-8") for path in folder.glob("*.py"))
    written = set(re.findall(r'"([a-z]+(?:-[a-z]+)+)"(?=,\n| if | else|\n)', source))
    ids = written & {i for i in written if not i.startswith("version-") or i == "version-unknown"}  # fmt: skip
    data = {bad.id for bad in versions.KNOWN_BAD}
    assert SCENARIOS.keys() - ids == {"cpu", "energy", "headroom"}, "not in the source"
    assert ids - data - SCENARIOS.keys() == set(), "no scenario"


def test_a_healthy_server_has_nothing_at_warning_or_unknown():
    assert {
        f.id for f in conclude(WELL) if f.severity in {*FAILING, "unknown"}
    } == set()


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


# Versions.


@pytest.mark.parametrize("bad", versions.KNOWN_BAD, ids=lambda bad: bad.id)
def test_a_known_defect_is_told_below_the_version_that_fixed_it_and_not_from_it(bad):
    def ids(version):
        text = ".".join(map(str, version))
        found = conclude(having(inventory=server(version=text)))
        return {f.id for f in found if f.reference == bad.reference}

    major, minor, patch = bad.fixed_in
    assert ids((major, minor - 1, 9)) == {f"version-{bad.id}"}
    assert ids((major, minor, patch)) == set()
    assert ids((major, minor + 1, 0)) == set()


@pytest.mark.parametrize(
    ("rate", "severity"), [("1", "warning"), ("99", "warning"), ("100", "info")]
)
def test_the_tracing_crash_warns_only_where_traces_are_dense(rate, severity):
    old = replace(tracing(trace_rate=rate), inventory=server(version="2.51.0"))
    (found,) = [f for f in conclude(old) if f.id == "version-tracing-crash"]
    assert found.severity == severity


# Where a finding must hold its tongue.


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
