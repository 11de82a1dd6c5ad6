"""How busy instances are, and what an inference costs in energy, where that is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporter.audit.evidence import rise
from exporter.audit.finding import Finding, many, measure, shown_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from exporter.audit.evidence import Evidence

_SATURATED: Final = 0.85
_CPU_FULL: Final = 0.9
_CAVEAT: Final = (
    "An upper bound: it assumes that an execution keeps its time under more load, and "
    "that instances and models do not share a device. `tritonwatch load capacity` "
    "measures it."
)


def busy(evidence: Evidence) -> Iterator[Finding]:
    """Busy seconds a second and instance; what is left is headroom at best."""
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
        full = ratio >= _SATURATED
        yield Finding(
            "instances-saturated" if full else "headroom",
            "warning" if full else "info",
            f"{shown_key(key)} is busy {ratio:.0%} of the time: headroom at most "
            f"{max(0.0, 1 - ratio):.0%}",
            "Add instances or replicas before traffic grows: waiting times rise steeply "
            "from here on."
            if full
            else _CAVEAT,
            (
                measure("busy", seconds, "s", "statistics, batches of this window"),
                measure("window", evidence.window_seconds, "s", "this audit"),
                measure("instances", instances, "", "model config"),
            ),
            "",
            *key,
        )
    if unknown:
        yield Finding(
            "headroom-unknown",
            "info",
            f"Headroom is unknown for {many(unknown, 'model')}",
            "It needs traffic while we watch and the number of instances: audit again "
            "under load, with HTTP configured.",
            (measure("models", unknown, source="statistics, model config"),),
        )


def cpu(evidence: Evidence) -> Iterator[Finding]:
    """The host's CPU, by Triton's own reading."""
    pages = [page for page in (evidence.first_page, evidence.last_page) if page]
    values = [v for page in pages for v in page.values("nv_cpu_utilization").values()]
    # Triton writes 0 into a gauge whose reading failed; and our own start, which may be
    # on the same host, must not pass for its load.
    least = min(values, default=0.0)
    if not least:
        return
    full = least >= _CPU_FULL
    yield Finding(
        "cpu-full" if full else "cpu",
        "warning" if full else "info",
        f"The host's CPU is {least:.0%} busy",
        "Everything on this host waits for it: give the server more cores, or move what "
        "else runs here."
        if full
        else "",
        (measure("nv_cpu_utilization", least * 100, "%", "metrics page, less of two"),),
    )


def energy(evidence: Evidence) -> Iterator[Finding]:
    """Energy in the window, by inference, from a sensor, the page or a model."""
    if any(taken.boundary == "gpu" for taken in evidence.power):
        yield from _taken(evidence)
        return
    yield from _energy_of_page(evidence, known=bool(evidence.power))
    yield from _taken(evidence)


def _taken(evidence: Evidence) -> Iterator[Finding]:
    """What was read in the window in which only others sent requests."""
    inferences = sum(
        risen.inference_count
        for key, before in evidence.first.items()
        if key in evidence.second and (risen := rise(before, evidence.second[key]))
    )
    for taken in evidence.power:
        what = "The boards take" if taken.boundary == "gpu" else "The host takes"
        least = "" if taken.known else "at least "
        modelled = " by the configured model" if taken.source == "model" else ""
        yield Finding(
            "energy-gpu" if taken.boundary == "gpu" else "energy-host",
            "info",
            f"{what} {least}{taken.joules / max(taken.seconds, 1e-9):.0f} W{modelled}"
            + (
                f", {taken.joules / inferences:.2f} J an inference"
                if inferences
                else ""
            ),
            "A line between two configured powers, not a measurement."
            if taken.source == "model"
            else "Idle power included, all models together; the sidecar divides it.",
            (
                measure("energy", taken.joules, "J", taken.source),
                measure("window", taken.seconds, "s", "this audit"),
                measure("inferences", inferences, "", "statistics, this window"),
            ),
        )


def _energy_of_page(evidence: Evidence, *, known: bool) -> Iterator[Finding]:
    """Energy of the boards between the two pages; unknown is said if nothing else is."""
    first, last = evidence.first_page, evidence.last_page
    joules = 0.0
    if first is not None and last is not None:
        before = first.values("nv_energy_consumption")
        after = last.values("nv_energy_consumption")
        rises = [after[la] - before[la] for la in after.keys() & before.keys()]
        joules = sum(rises) if all(r > 0 for r in rises) else 0.0
    if first is None or last is None or joules <= 0:
        if known:
            return
        yield Finding(
            "energy-unknown",
            "unknown" if any(c.on_gpu for c in evidence.configs.values()) else "info",
            "Energy is unknown: Triton's page shows no energy counter that rises",
            "Run the audit where it can read NVML or RAPL, or give `power.sources` a "
            "model of the machine.",
            (
                measure(
                    "nv_energy_consumption",
                    None,
                    "J",
                    evidence.problems.get("metrics", "metrics page"),
                ),
            ),
        )
        return
    inferences = sum(
        risen.inference_count
        for key, before_ in evidence.first.items()
        if key in evidence.last and (risen := rise(before_, evidence.last[key]))
    )
    seconds = last.at - first.at
    yield Finding(
        "energy",
        "info",
        f"The boards take {joules / seconds:.0f} W"
        + (f", {joules / inferences:.2f} J an inference" if inferences else ""),
        "Idle power included, all models together, our own probes among them.",
        (
            measure("energy", joules, "J", "nv_energy_consumption"),
            measure("time", seconds, "s", "this audit"),
            measure("inferences", inferences, "", "statistics"),
        ),
    )


CHECKS: Final = (busy, cpu, energy)
