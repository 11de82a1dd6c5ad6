"""Every probe that the configuration can name.

A probe is a settings model with `kind` and `build`, and one line in `AnyProbe`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from exporter.features.golden.golden_settings import GoldenSettings
from exporter.features.synthetic.synthetic_probe import SyntheticSettings

AnyProbe = Annotated[
    GoldenSettings | SyntheticSettings,
    Field(discriminator="kind"),
]
