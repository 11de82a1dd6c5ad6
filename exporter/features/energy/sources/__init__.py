"""Sources of power readings, one module each.

A source is a settings model with `kind`, `boundary` and `find`, and one line in
`AnySource`. What a source needs beyond the standard library it imports when it is found.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from exporter.features.energy.sources.nvml import NvmlSettings
from exporter.features.energy.sources.power_model import ModelSettings
from exporter.features.energy.sources.rapl import RaplSettings
from exporter.features.energy.sources.triton_gauges import TritonGaugesSettings

AnySource = Annotated[
    NvmlSettings | TritonGaugesSettings | RaplSettings | ModelSettings,
    Field(discriminator="kind"),
]
