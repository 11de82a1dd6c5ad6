"""The `power:` and `cost:` of the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from exporter.access.collector_base import CollectorSettings
from exporter.features.energy.sources import AnySource
from exporter.features.energy.sources.nvml import NvmlSettings
from exporter.features.energy.sources.rapl import RaplSettings
from exporter.features.energy.sources.triton_gauges import TritonGaugesSettings
from exporter.settings import ModelMention, Settings, literal_mentions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from exporter.access.collector_base import Access, Collector

Precision = Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8"]
_PRICE_MOST = 1_000_000_000


class ModelWorkSettings(Settings):
    """Operations per inference of a model."""

    flops_per_inference: float = Field(gt=0, le=1e24)
    """Floating point operations per inference (a multiply-add counts as two); integer
    operations for int8."""
    precision: Precision = Field(default="fp16")
    """Precision of the arithmetic, which selects the GPU's peak."""


class GpuPeakSettings(Settings):
    """Peak performance of a GPU that is missing or wrong in the built-in table."""

    peak_flops: dict[Precision, float] = Field(default={}, max_length=16)
    """Dense operations per second, by precision."""


class CostSettings(Settings):
    """Prices and other inputs of derived figures.

    Figures whose inputs are not set are absent.
    """

    currency: str = Field(default="USD", pattern=r"^[A-Z]{3}$")
    """ISO 4217 code, used as the value of the `currency` label."""
    gpu_hour_price: float | None = Field(default=None, ge=0, le=_PRICE_MOST)
    """Price of one GPU per hour."""
    machine_hour_price: float | None = Field(default=None, ge=0, le=_PRICE_MOST)
    """Price of the machine per hour, without its GPUs."""
    electricity_price_per_kwh: float | None = Field(default=None, ge=0, le=_PRICE_MOST)
    """Price per kilowatt hour, if it is not included in the prices above."""
    pue: float = Field(default=1.0, ge=1, le=10)
    """Power usage effectiveness: energy of the data centre over that of its machines.
    """
    grid_grams_per_kwh: float | None = Field(default=None, ge=0, le=100_000)
    """Grams of CO2 equivalent per kilowatt hour from this grid."""
    models: dict[str, ModelWorkSettings] = Field(default={}, max_length=10_000)
    """Work per inference, by model name."""
    gpu: GpuPeakSettings = Field(default=GpuPeakSettings())
    """Peak performance of the GPUs, in place of the built-in table."""

    def model_mentions(self) -> Iterator[ModelMention]:
        """The models whose work is given."""
        return literal_mentions("models", self.models)


class PowerSettings(CollectorSettings):
    """Sources of power readings, and how energy is divided among models."""

    interval_seconds: float = Field(default=1.0, gt=0.05, le=60)
    """Time between two readings of the sensors."""
    deadline_seconds: float = Field(default=4.0, gt=0, le=3600)
    """A run that takes longer counts as failed, and its samples are discarded."""
    sources: tuple[AnySource, ...] = Field(
        default=(NvmlSettings(), TritonGaugesSettings(), RaplSettings()),
        min_length=1,
        max_length=16,
    )
    """Sources in order of preference. For each boundary (gpu, host) the first one that
    can be read is used, or else the first that exists. While Triton is down, the boards
    wait for its metrics page if that comes first.
    """
    window_seconds: float = Field(default=5.0, ge=1, le=600)
    """Minimum length of the windows in which energy is divided among models. Set it
    higher than the longest execution."""
    rate_window_seconds: float = Field(default=300.0, ge=10, le=86400)
    """Time over which energy and cost per inference are averaged."""
    timeout_seconds: float = Field(default=1.0, gt=0, le=60)
    """Timeout of a request to Triton's metrics page."""
    model_gpus: dict[str, tuple[Annotated[int, Field(ge=0, le=1023)], ...]] = Field(
        default={}, max_length=10_000
    )
    """GPUs of models whose instance groups do not name them, such as Python models with
    `KIND_CPU` that use a GPU: numbers as CUDA counts them, by model; `[]` for none."""

    def model_mentions(self) -> Iterator[ModelMention]:
        """The models whose GPUs are declared."""
        return literal_mentions("model_gpus", self.model_gpus)

    @model_validator(mode="after")
    def _consistent(self) -> PowerSettings:
        if self.rate_window_seconds < 2 * self.window_seconds:
            raise ValueError(
                f"found rate_window_seconds {self.rate_window_seconds:g}; want at least "
                f"two windows of {self.window_seconds:g} s"
            )
        if self.window_seconds < self.interval_seconds:
            raise ValueError(
                f"found window_seconds {self.window_seconds:g} below interval_seconds "
                f"{self.interval_seconds:g}; a window needs at least one reading"
            )
        return self


class EnergySettings(PowerSettings):
    """Built from `power:` and `cost:`."""

    cost: CostSettings = Field(default=CostSettings())
    """Prices."""

    def build(self, access: Access) -> Collector:
        """The collector."""
        from exporter.features.energy.energy_collector import EnergyCollector  # noqa: PLC0415 - see there

        return EnergyCollector(self, access)


def energy_settings(power: PowerSettings, cost: CostSettings) -> EnergySettings:
    """The collector's settings."""
    given = {name: getattr(power, name) for name in PowerSettings.model_fields}
    return EnergySettings(**given, cost=cost)
