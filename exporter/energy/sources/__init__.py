"""Ways to read power, one module each.

A source is a settings model with `kind`, `boundary` and `find`, and one line in
`AnySource`. What a source needs beyond the standard library it imports when it is found.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from exporter.energy.sources.model import ModelSettings
from exporter.energy.sources.nvml import NvmlSettings
from exporter.energy.sources.rapl import RaplSettings
from exporter.energy.sources.triton_gauges import TritonGaugesSettings

AnySource = Annotated[
    NvmlSettings | TritonGaugesSettings | RaplSettings | ModelSettings,
    Field(discriminator="kind"),
]
