"""Settings of answer statistics and accuracy estimates without labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from exporter.access.collector_base import CollectorSettings
from exporter.settings import ModelFilter, ModelMention, below, literal_mentions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from exporter.access.collector_base import Access, Collector


class OutputsSettings(CollectorSettings):
    """Confidence and classes of mirrored answers, and estimated accuracy.

    The answers come from the taps (`kind: mirror`). The estimate needs a golden probe
    with labels for the model: its answers calibrate the confidence.
    """

    kind: Literal["outputs"] = "outputs"
    models: ModelFilter = Field(default=ModelFilter())
    """Models whose answers are evaluated."""
    outputs: dict[str, str] = Field(default={}, max_length=1000)
    """Output to evaluate, by model name, for models with several outputs."""
    window_rows: int = Field(default=1000, ge=50, le=100_000)
    """Number of latest answers from which the figures are calculated."""
    models_limit: int = Field(default=200, ge=1, le=10_000)
    """Maximum number of model versions."""

    def model_mentions(self) -> Iterator[ModelMention]:
        """The models of the filter, and those with an output of their own."""
        yield from below("models", self.models.model_mentions())
        yield from literal_mentions("outputs", self.outputs)

    def build(self, access: Access) -> Collector:
        """The collector."""
        from exporter.features.outputs.outputs_collector import (  # noqa: PLC0415 - only if configured
            OutputsCollector,
        )

        return OutputsCollector(self, access)
