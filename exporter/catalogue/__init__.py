"""Every metric exposed: name, labels, help, buckets, stability. Data only.

`triton_` is about the server, `tritonwatch_` about this process, `process_` the
standard process metrics. A metric that is not here cannot be exposed; renaming one is
a breaking change. One module a subject; a new one joins the imports, for those that say
`catalogue.X`, and `PARTS`.
"""

# ruff: noqa: F403 - names are unique over the parts, see the contract test
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporter.catalogue import (
    comparisons,
    drift,
    energy,
    generation,
    golden,
    ourselves,
    probes,
    production,
    runs,
    server,
    slo,
    spc,
    taps,
    traces,
)
from exporter.catalogue.comparisons import *
from exporter.catalogue.drift import *
from exporter.catalogue.energy import *
from exporter.catalogue.generation import *
from exporter.catalogue.golden import *
from exporter.catalogue.ourselves import *
from exporter.catalogue.probes import *
from exporter.catalogue.production import *
from exporter.catalogue.runs import *
from exporter.catalogue.server import *
from exporter.catalogue.shared import *
from exporter.catalogue.slo import *
from exporter.catalogue.spc import *
from exporter.catalogue.taps import *
from exporter.catalogue.traces import *
from exporter.samples import MetricSpec

if TYPE_CHECKING:
    from types import ModuleType

PARTS: Final[tuple[ModuleType, ...]] = (
    server,
    probes,
    production,
    traces,
    generation,
    taps,
    slo,
    energy,
    drift,
    comparisons,
    golden,
    spc,
    runs,
    ourselves,
)

CATALOGUE: Final[tuple[MetricSpec, ...]] = tuple(
    spec
    for part in PARTS
    for spec in vars(part).values()
    if isinstance(spec, MetricSpec)
)
"""Every metric, in the order it is exposed and documented."""
