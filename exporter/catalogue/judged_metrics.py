"""The metrics that objectives and control charts can judge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporter.catalogue import CATALOGUE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from exporter.samples import Kind, MetricSpec

_SPECS: Final = {spec.name: spec for spec in CATALOGUE}


def judged_metric(
    name: str, labels: Iterable[str], kinds: tuple[Kind, ...]
) -> MetricSpec:
    """The metric `name`, one of `kinds`, that has all these labels.

    Raises:
        ValueError: there is no such metric on /metrics, or it cannot be judged.
    """
    spec = _SPECS.get(name)
    if spec is None or spec.kind not in kinds:
        raise ValueError(
            f"found metric {name!r}; want a {_listed(kinds)} of METRICS.md"
        )
    if spec.on_probe_only:
        raise ValueError(
            f"found metric {name!r}, which is on /probe only; want a metric of /metrics"
        )
    unknown = sorted(set(labels) - set(spec.labels))
    if unknown:
        raise ValueError(f"found labels {unknown}; {name} has {list(spec.labels)}")
    return spec


def _listed(kinds: tuple[Kind, ...]) -> str:
    # Our summaries are quantiles, which are judged as gauges.
    *rest, last = [kind for kind in kinds if kind != "summary"]
    return f"{', '.join(rest)} or {last}"
