"""Every metric exposed: name, labels, help, buckets, stability. Data only.

`triton_` is about the server, `tritonwatch_` about this process, `process_` the
standard process metrics. A metric that is not here cannot be exposed; renaming one is
a breaking change. One module for each subject; add a new one to the imports, for uses of
`catalogue.X`, and `PARTS`.
"""

# ruff: noqa: F403 - names are unique over the parts, see the contract test
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporter.catalogue import (
    comparison_metrics,
    drift_metrics,
    energy_metrics,
    generation_metrics,
    golden_metrics,
    probe_metrics,
    production_metrics,
    run_metrics,
    server_metrics,
    sidecar_metrics,
    slo_metrics,
    spc_metrics,
    tap_metrics,
    trace_metrics,
)
from exporter.catalogue.comparison_metrics import *
from exporter.catalogue.drift_metrics import *
from exporter.catalogue.energy_metrics import *
from exporter.catalogue.generation_metrics import *
from exporter.catalogue.golden_metrics import *
from exporter.catalogue.probe_metrics import *
from exporter.catalogue.production_metrics import *
from exporter.catalogue.run_metrics import *
from exporter.catalogue.server_metrics import *
from exporter.catalogue.shared import *
from exporter.catalogue.sidecar_metrics import *
from exporter.catalogue.slo_metrics import *
from exporter.catalogue.spc_metrics import *
from exporter.catalogue.tap_metrics import *
from exporter.catalogue.trace_metrics import *
from exporter.samples import MetricSpec

if TYPE_CHECKING:
    from types import ModuleType

PARTS: Final[tuple[ModuleType, ...]] = (
    server_metrics,
    probe_metrics,
    production_metrics,
    trace_metrics,
    generation_metrics,
    tap_metrics,
    slo_metrics,
    energy_metrics,
    drift_metrics,
    comparison_metrics,
    golden_metrics,
    spc_metrics,
    run_metrics,
    sidecar_metrics,
)

CATALOGUE: Final[tuple[MetricSpec, ...]] = tuple(
    spec
    for part in PARTS
    for spec in vars(part).values()
    if isinstance(spec, MetricSpec)
)
"""Every metric, in the order it is exposed and documented."""
