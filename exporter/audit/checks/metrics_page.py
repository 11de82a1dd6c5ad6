"""Triton's own metrics page: is it there, is it true, and what does it cost?"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from exporter.audit.finding import Finding, many, measure, shown_key
from exporter.collectors.production import cross_checked
from exporter.upstream import CROSS_CHECKED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from exporter.audit.evidence import Evidence, Page
    from exporter.inventory import ModelKey

_BUSY: Final = 0.1
_FREEZE_SECONDS: Final = 4.0
"""Triton reads GPUs every 2 s by default: two readings must lie between two looks."""
_APART: Final = 0.02


def off(evidence: Evidence) -> Iterator[Finding]:
    """No page at all."""
    problem = evidence.problems.get("metrics")
    if problem is None or evidence.last_page is not None:
        return
    meant = "config" in problem
    yield Finding(
        "metrics-off",
        "info" if meant else "warning",
        "Triton's metrics page is not looked at"
        if meant
        else "Triton's metrics page cannot be read",
        "Set `target.metrics` to its address."
        if meant
        else "Start Triton with --allow-metrics=true, or correct `target.metrics`; set it "
        "to null if metrics are off on purpose.",
        (measure("answer", problem, source="GET /metrics"),),
    )


def _counters(page: Page) -> dict[tuple[ModelKey, str], float]:
    sums: dict[tuple[ModelKey, str], float] = defaultdict(float)
    for item in CROSS_CHECKED:
        for labels, value in page.series.get(item.name, ()):
            if "model" in labels and "version" in labels:
                key = (labels["model"], labels["version"])
                sums[key, item.statistics_field] += value
    return sums


def zero(evidence: Evidence) -> Iterator[Finding]:
    """Counters at 0 while the statistics count: what `counter_latencies=false` does."""
    page = evidence.first_page
    if page is None:
        return
    counters = _counters(page)
    for key, statistics in evidence.first.items():
        counted = cross_checked(statistics)["success"]
        if counted and counters.get((key, "success")) == 0:
            yield Finding(
                "counters-frozen-at-zero",
                "warning",
                f"{shown_key(key)}: the metrics page shows 0 requests of {counted}",
                "Remove counter_latencies=false from --metrics-config: it stops every "
                "request counter. Until then build alerts on the statistics API.",
                (
                    measure("requests", 0, "", "nv_inference_request_success"),
                    measure("requests", counted, "", "statistics API"),
                ),
                "server#8125",
                *key,
            )


def disagreement(evidence: Evidence) -> Iterator[Finding]:
    """Page and statistics rose by different amounts while we watched."""
    by_model: dict[ModelKey, list[tuple[str, float]]] = defaultdict(list)
    for item in evidence.disagreements:
        if item.ratio > _APART:
            by_model[item.key].append((item.counter, item.ratio))
    for key, apart in by_model.items():
        yield Finding(
            "metrics-disagree",
            "warning",
            f"{shown_key(key)}: the metrics page and the statistics API count differently",
            "Trust the statistics API: its rise is what we sent ourselves at least. "
            "Dashboards and autoscalers on nv_* see something else.",
            tuple(
                measure(
                    counter, ratio * 100, "% of the rise", "page against statistics"
                )
                for counter, ratio in apart
            ),
            "server#8125",
            *key,
        )
    if evidence.disagreements and not by_model:
        yield Finding(
            "metrics-agree",
            "ok",
            "The metrics page and the statistics API count alike",
            evidence=(measure("counters compared", len(evidence.disagreements)),),
        )


def gpu_gauges(evidence: Evidence) -> Iterator[Finding]:
    """A GPU gauge that reads 0 is a reading that failed, and three latch it for good."""
    first, last = evidence.first_page, evidence.last_page
    if first is None or last is None:
        return
    busy = sum(
        evidence.busy_seconds(key) or 0.0
        for key, config in evidence.configs.items()
        if config.on_gpu
    )
    is_busy = busy > _BUSY * evidence.window_seconds
    for name, unit, needs_load in (
        ("nv_gpu_power_usage", "W", False),
        ("nv_gpu_utilization", "", True),
    ):
        before, after = first.values(name), last.values(name)
        stuck = [dict(la) for la, v in after.items() if v == 0 == before.get(la)]
        if not stuck or (needs_load and not is_busy):
            continue
        yield Finding(
            "gpu-gauge-latched",
            "warning",
            f"{name} reads 0 on {many(len(stuck), 'GPU')}: that is a failed reading, not a "
            "measurement",
            "After three failures Triton never reads it again until it is restarted. "
            "Take power and utilisation from NVML or DCGM; look for MIG or a second DCGM.",
            (
                measure(
                    name, 0, unit, f"metrics page, {last.at - first.at:.0f} s apart"
                ),
                measure("gpu_uuid", stuck[0].get("gpu_uuid")),
                measure("GPU models busy", busy, "s", "statistics, this window"),
            ),
            "server#5324",
        )


def energy_frozen(evidence: Evidence) -> Iterator[Finding]:
    """Power flows and the energy counter stands."""
    first, last = evidence.first_page, evidence.last_page
    if first is None or last is None or last.at - first.at < _FREEZE_SECONDS:
        return
    before = first.values("nv_energy_consumption")
    power = last.values("nv_gpu_power_usage")
    for labels, joules in last.values("nv_energy_consumption").items():
        if before.get(labels) == joules and power.get(labels, 0) > 0:
            yield Finding(
                "energy-counter-frozen",
                "warning",
                "nv_energy_consumption does not rise while the GPU takes power",
                "Restart Triton to have it read again, and take energy from NVML.",
                (
                    measure("energy", joules, "J", "nv_energy_consumption, both looks"),
                    measure("power", power[labels], "W", "nv_gpu_power_usage"),
                    measure("gpu_uuid", dict(labels).get("gpu_uuid")),
                ),
                "server#5324",
            )


def summaries(evidence: Evidence) -> Iterator[Finding]:
    """Latency summaries are on."""
    page = evidence.last_page
    names = [n for n in page.series if n.startswith("nv_") and "_summary_us" in n] if page else []  # fmt: skip
    if names:
        yield Finding(
            "summaries-on",
            "warning",
            "Latency summaries are on: they cost throughput and cannot be added up",
            "Remove summary_latencies=true from --metrics-config; a user lost 33 % of "
            "throughput on ResNet-50. Take quantiles from sampled traces.",
            (measure("series", len(names), "families", "metrics page"),),
            "server#8561",
        )


def first_response(evidence: Evidence) -> Iterator[Finding]:
    """The first-response histogram, which says something of decoupled models only."""
    page = evidence.last_page
    name = "nv_inference_first_response_histogram_ms_bucket"
    if page is None or name not in page.series:
        return
    models = {labels.get("model", "") for labels, _ in page.series[name]}
    decoupled = {
        k[0] for k, spec in evidence.inventory.models.items() if spec.decoupled
    }
    yield Finding(
        "first-response-histogram",
        "info",
        f"The first-response histogram covers {many(len(models), 'model')}, "
        f"{len(models & decoupled)} of them decoupled",
        "Its four buckets, 100 to 5000 ms, are meant for decoupled models; of others it "
        "says nothing about a tail.",
        (measure("models", len(models), "", "metrics page"),),
        "server#7672",
    )


CHECKS: Final = (
    off,
    zero,
    disagreement,
    gpu_gauges,
    energy_frozen,
    summaries,
    first_response,
)
