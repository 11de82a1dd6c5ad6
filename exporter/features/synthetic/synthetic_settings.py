"""Settings of the synthetic probe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from exporter.access.probe_base import ProbeSettings, Transport
from exporter.own_requests.answer_checks import Check
from exporter.own_requests.payload import InputSettings
from exporter.settings import ModelMention, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from exporter.access.collector_base import Access
    from exporter.access.probe_base import Probe


class ModelOverride(Settings):
    """Settings that differ for one model."""

    inputs: dict[str, InputSettings] = Field(default={}, max_length=1000)
    """Shape, range or values, by input name."""
    parameters: dict[str, bool | int | str] = Field(default={}, max_length=100)
    """Request parameters."""
    checks: frozenset[Check] | None = Field(default=None)
    """Value checks that replace those of the probe."""
    max_first_response_seconds: float | None = Field(default=None, gt=0, le=600)
    """Longest time to the first response of a stream; replaces that of the probe."""
    max_gap_seconds: float | None = Field(default=None, gt=0, le=600)
    """Longest time between two responses of a stream; replaces that of the probe."""


class SyntheticSettings(ProbeSettings):
    """Send generated tensors to every ready model, over gRPC and HTTP."""

    kind: Literal["synthetic"] = "synthetic"
    protocols: tuple[Transport, ...] = Field(default=("grpc", "http"), min_length=1)
    """Protocols to probe. Decoupled models are asked once, over gRPC; without gRPC here
    on `generate_stream`, if it can carry their inputs."""
    checks: frozenset[Check] = Field(default=frozenset({"nan", "inf"}))
    """Values that make a successful answer a bad output, in addition to a wrong
    datatype, shape or size."""
    max_first_response_seconds: float | None = Field(default=None, gt=0, le=600)
    """Longest time to the first response of a decoupled model. A longer one gives the
    outcome `stalled`, and the model still counts as serving; no response at all is
    `bad_output`. By default there is no limit, and no response is required."""
    max_gap_seconds: float | None = Field(default=None, gt=0, le=600)
    """Longest time between two responses of a decoupled model; a longer one also gives
    `stalled`. The time from the last response to the end of the stream does not count.
    """
    overrides: dict[str, ModelOverride] = Field(default={}, max_length=10_000)
    """Overrides by model name."""
    seed: int = Field(default=0, ge=0)
    """Seed of the generated tensors."""

    def model_mentions(self) -> Iterator[ModelMention]:
        """The models of the filter, and those with overrides."""
        yield from super().model_mentions()
        for model, override in self.overrides.items():
            place = f"overrides.{model}"
            yield ModelMention(
                place,
                model,
                inputs=frozenset(override.inputs),
                inputs_place=f"{place}.inputs",
            )

    def build(self, access: Access) -> Probe:
        """The probe."""
        from exporter.features.synthetic.synthetic_probe import SyntheticProbe  # noqa: PLC0415 - only if configured

        return SyntheticProbe(self, access)
