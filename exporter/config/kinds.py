"""Every collector and probe that the configuration can name.

Each is a settings model with `kind` and `build`, and one line in a union here.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from exporter.features.access_log.access_log_collector import AccessLogSettings
from exporter.features.cold_start.cold_start_collector import ColdStartSettings
from exporter.features.discovery.server_collector import ServerSettings
from exporter.features.golden.golden_settings import GoldenSettings
from exporter.features.outputs.outputs_settings import OutputsSettings
from exporter.features.process.process_collector import ProcessSettings
from exporter.features.runs.runs_collector import RunsSettings
from exporter.features.spc.spc_settings import SpcSettings
from exporter.features.statistics.backend_page_collector import BackendPageSettings
from exporter.features.statistics.statistics_settings import StatisticsSettings
from exporter.features.synthetic.synthetic_settings import SyntheticSettings
from exporter.features.traces.traces_collector import TracesSettings
from exporter.taps.mirroring.mirror_collector import MirrorSettings

AnyCollector = Annotated[
    AccessLogSettings
    | BackendPageSettings
    | ColdStartSettings
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


AnyProbe = Annotated[
    GoldenSettings | SyntheticSettings,
    Field(discriminator="kind"),
]
