"""Checks of Triton's metrics page: presence, correctness, and cost."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from exporter.commands.audit.finding import found, many
from exporter.features.statistics.production_counts import cross_checked
from exporter.triton.upstream import CROSS_CHECKED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from exporter.access.inventory import ModelKey
    from exporter.commands.audit.audit_evidence import Evidence, Page
    from exporter.commands.audit.finding import Finding

_BUSY: Final = 0.1
_FREEZE_SECONDS: Final = 4.0
"""Time that covers two of Triton's GPU readings, by default every 2 s."""
_APART: Final = 0.02


def off(evidence: Evidence) -> Iterator[Finding]:
    """Report a missing page."""
    problem = evidence.problems.get("metrics")
    if problem is None or evidence.last_page is not None:
        return
    meant = "config" in problem
    yield found(
        "metrics-off",
        ("answer", problem, "", "GET /metrics"),
        severity="info" if meant else None,
        advice="Set `target.metrics` to its address." if meant else None,
        problem="is not looked at" if meant else "cannot be read",
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
    """Report counters at 0 while the statistics count, as with `counter_latencies=false`."""
    # Of the end: what the first statistics had counted by then is on it.
    page = evidence.last_page
    if page is None:
        return
    counters = _counters(page)
    for key, statistics in evidence.first.items():
        counted = cross_checked(statistics)["success"]
        if counted and counters.get((key, "success")) == 0:
            yield found(
                "counters-frozen-at-zero",
                ("requests", 0, "", "nv_inference_request_success"),
                ("requests", counted, "", "statistics API"),
                key=key,
                counted=counted,
            )


def disagreement(evidence: Evidence) -> Iterator[Finding]:
    """Page and statistics rose by different amounts while we watched."""
    by_model: dict[ModelKey, list[tuple[str, float]]] = defaultdict(list)
    for item in evidence.disagreements:
        if item.ratio > _APART:
            by_model[item.key].append((item.counter, item.ratio))
    source = "page against statistics"
    for key, apart in by_model.items():
        ratios = [(name, ratio * 100, "% of the rise", source) for name, ratio in apart]
        yield found("metrics-disagree", *ratios, key=key)
    if evidence.disagreements and not by_model:
        compared = ("counters compared", len(evidence.disagreements))
        yield found("metrics-agree", compared)


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
        apart = f"metrics page, {last.at - first.at:.0f} s apart"
        yield found(
            "gpu-gauge-latched",
            (name, 0, unit, apart),
            ("gpu_uuid", stuck[0].get("gpu_uuid")),
            ("GPU models busy", busy, "s", "statistics, this window"),
            name=name,
            gpus=many(len(stuck), "GPU"),
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
            yield found(
                "energy-counter-frozen",
                ("energy", joules, "J", "nv_energy_consumption, both looks"),
                ("power", power[labels], "W", "nv_gpu_power_usage"),
                ("gpu_uuid", dict(labels).get("gpu_uuid")),
            )


def summaries(evidence: Evidence) -> Iterator[Finding]:
    """Latency summaries are on."""
    page = evidence.last_page
    names = [n for n in page.series if n.startswith("nv_") and "_summary_us" in n] if page else []  # fmt: skip
    if names:
        yield found("summaries-on", ("series", len(names), "families", "metrics page"))


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
    yield found(
        "first-response-histogram",
        ("models", len(models), "", "metrics page"),
        models=many(len(models), "model"),
        decoupled=len(models & decoupled),
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
