"""What reads the server and this process in the background, one module each.

A collector is a settings model with `kind` and `build`, and one line in `AnyCollector`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from exporter.collectors.cold_start import ColdStartSettings
from exporter.collectors.mirror import MirrorSettings
from exporter.collectors.outputs import OutputsSettings
from exporter.collectors.process import ProcessSettings
from exporter.collectors.runs import RunsSettings
from exporter.collectors.server import ServerSettings
from exporter.collectors.spc import SpcSettings
from exporter.collectors.statistics import StatisticsSettings
from exporter.collectors.traces import TracesSettings

AnyCollector = Annotated[
    ColdStartSettings
    | MirrorSettings
    | OutputsSettings
    | ProcessSettings
    | RunsSettings
    | ServerSettings
    | SpcSettings
    | StatisticsSettings
    | TracesSettings,
    Field(discriminator="kind"),
]
