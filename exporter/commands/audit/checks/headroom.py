"""Utilisation of instances, and energy of an inference, where they are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporter.commands.audit.audit_evidence import rise
from exporter.commands.audit.finding import found, many

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from exporter.access.inventory import ModelKey
    from exporter.commands.audit.audit_evidence import Evidence
    from exporter.commands.audit.finding import Finding
    from exporter.triton.model import ModelStatistics

_SATURATED: Final = 0.85
_CPU_FULL: Final = 0.9
_NAMES: Final = {"gpu": "energy-gpu"}


def busy(evidence: Evidence) -> Iterator[Finding]:
    """Report busy seconds per second and instance; the rest is an upper bound of headroom."""
    unknown = 0
    for key in evidence.inventory.models:
        window, config = evidence.window(key), evidence.configs.get(key)
        seconds = evidence.busy_seconds(key)
        idle = window is None or not window.execution_count
        if seconds is None or idle or config is None or not evidence.window_seconds:
            unknown += not evidence.inventory.models[key].steps
            continue
        instances = max(1, config.instances)
        ratio = seconds / evidence.window_seconds / instances
        yield found(
            "instances-saturated" if ratio >= _SATURATED else "headroom",
            ("busy", seconds, "s", "statistics, batches of this window"),
            ("window", evidence.window_seconds, "s", "this audit"),
            ("instances", instances, "", "model config"),
            key=key,
            ratio=ratio,
            rest=max(0.0, 1 - ratio),
        )
    if unknown:
        yield found(
            "headroom-unknown",
            ("models", unknown, "", "statistics, model config"),
            models=many(unknown, "model"),
        )


def cpu(evidence: Evidence) -> Iterator[Finding]:
    """The host's CPU, by Triton's own reading."""
    pages = [page for page in (evidence.first_page, evidence.last_page) if page]
    values = [v for page in pages for v in page.values("nv_cpu_utilization").values()]
    # Triton writes 0 into a gauge whose reading failed; and our own start, which may be
    # on the same host, must not pass for its load.
    least = min(values, default=0.0)
    if least:
        yield found(
            "cpu-full" if least >= _CPU_FULL else "cpu",
            ("nv_cpu_utilization", least * 100, "%", "metrics page, less of two"),
            least=least,
        )


def energy(evidence: Evidence) -> Iterator[Finding]:
    """Energy in the window, by inference, from a sensor, the page or a model."""
    if not any(taken.boundary == "gpu" for taken in evidence.power):
        yield from _energy_of_page(evidence, known=bool(evidence.power))
    inferences = _inferences(evidence.first, evidence.second)
    for taken in evidence.power:
        modelled = taken.source == "model"
        line = "A line between two configured powers, not a measurement."
        yield found(
            _NAMES.get(taken.boundary, "energy-host"),
            ("energy", taken.joules, "J", taken.source),
            ("window", taken.seconds, "s", "this audit"),
            ("inferences", inferences, "", "statistics, this window"),
            advice=line if modelled else None,
            least="" if taken.known else "at least ",
            watts=taken.joules / max(taken.seconds, 1e-9),
            modelled=" by the configured model" if modelled else "",
            each=_each(taken.joules, inferences),
        )


def _energy_of_page(evidence: Evidence, *, known: bool) -> Iterator[Finding]:
    """Energy of the boards between the two pages; unknown is said if nothing else is."""
    name = "nv_energy_consumption"
    first, last = evidence.first_page, evidence.last_page
    joules = 0.0
    if first is not None and last is not None:
        before, after = first.values(name), last.values(name)
        rises = [after[la] - before[la] for la in after.keys() & before.keys()]
        joules = sum(rises) if all(r > 0 for r in rises) else 0.0
    if first is None or last is None or joules <= 0:
        if not known:
            on_gpu = any(c.on_gpu for c in evidence.configs.values())
            source = evidence.problems.get("metrics", "metrics page")
            yield found(
                "energy-unknown",
                (name, None, "J", source),
                severity="unknown" if on_gpu else None,
            )
        return
    inferences = _inferences(evidence.first, evidence.last)
    seconds = last.at - first.at
    yield found(
        "energy",
        ("energy", joules, "J", name),
        ("time", seconds, "s", "this audit"),
        ("inferences", inferences, "", "statistics"),
        watts=joules / seconds,
        each=_each(joules, inferences),
    )


def _inferences(
    before: Mapping[ModelKey, ModelStatistics],
    after: Mapping[ModelKey, ModelStatistics],
) -> int:
    rises = (rise(before[key], after[key]) for key in before if key in after)
    return sum(risen.inference_count for risen in rises if risen)


def _each(joules: float, inferences: int) -> str:
    return f", {joules / inferences:.2f} J an inference" if inferences else ""


CHECKS: Final = (busy, cpu, energy)
