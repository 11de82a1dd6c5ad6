"""The collectors that a configuration runs, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from exporter.features.comparison.comparison_settings import ComparisonCollectorSettings
from exporter.features.drift.drift_settings import DriftCollectorSettings
from exporter.features.energy.energy_settings import energy_settings
from exporter.features.slo.objectives import expanded
from exporter.features.slo.slo_collector import SloSettings

if TYPE_CHECKING:
    from exporter.access.collector_base import CollectorSettings
    from exporter.config.configuration import Config


def configured_collectors(config: Config) -> dict[str, CollectorSettings]:
    """Return every collector that runs, with those that a section of the file stands for."""
    collectors: dict[str, CollectorSettings] = {
        c.kind: c for c in config.all_collectors()
    }
    if config.slos:
        collectors["slo"] = SloSettings(objectives=expanded(config.slos))
    if config.drift:
        collectors["drift"] = DriftCollectorSettings.of(config.drift)
    if config.comparisons:
        collectors["comparison"] = ComparisonCollectorSettings(
            comparisons=config.comparisons
        )
    if config.power is not None:
        collectors["energy"] = energy_settings(config.power, config.cost)
    return collectors
