"""What asks the server something itself, one module each.

A probe is a settings model with `kind` and `build`, and one line in `AnyProbe`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from exporter.probes.golden import GoldenSettings
from exporter.probes.synthetic import SyntheticSettings

AnyProbe = Annotated[
    GoldenSettings | SyntheticSettings,
    Field(discriminator="kind"),
]
