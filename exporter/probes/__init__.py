"""What asks the server something itself, one module each.

A probe is a settings model with `kind` and `build`, and one line in `AnyProbe`.
"""

from __future__ import annotations

from exporter.probes.synthetic import SyntheticSettings

AnyProbe = SyntheticSettings
"""The union of all kinds; with the second kind it becomes a discriminated one."""
