"""Settings of control charts over exposed signals."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from exporter.access.collector_base import CollectorSettings
from exporter.catalogue.judged_metrics import judged_metric
from exporter.settings import Settings

if TYPE_CHECKING:
    from exporter.access.collector_base import Access, Collector


class ShewhartChart(Settings):
    """Evaluates each sample on its own.

    Detects large shifts at once, small ones rarely.
    """

    kind: Literal["shewhart"] = "shewhart"


class EwmaChart(Settings):
    """Exponentially weighted moving average.

    Detects small shifts and is easy to read.
    """

    kind: Literal["ewma"] = "ewma"
    weight: float = Field(default=0.2, ge=0.02, le=1)
    """Weight of the latest sample. Smaller weights detect smaller shifts."""


class CusumChart(Settings):
    """Cumulative sum. No chart detects a lasting shift of the given size faster."""

    kind: Literal["cusum"] = "cusum"
    shift_sigma: float = Field(default=1.0, ge=0.1, le=10)
    """Size of the shift to detect, in standard deviations."""
    fast_initial_response: bool = Field(default=True)
    """Start halfway to the limit, so that a shift present at the start is detected
    sooner."""


class PageHinkleyChart(Settings):
    """Cumulative sum around a mean that is learnt continuously.

    Slow drift raises no alarm.
    """

    kind: Literal["page_hinkley"] = "page_hinkley"
    shift_sigma: float = Field(default=1.0, ge=0.1, le=10)
    """Size of the shift to detect, in standard deviations."""


AnyChart = Annotated[
    ShewhartChart | EwmaChart | CusumChart | PageHinkleyChart,
    Field(discriminator="kind"),
]


class GivenBaseline(Settings):
    """A baseline that is known in advance."""

    mean: float
    """Mean, in the unit of the signal."""
    sigma: float = Field(gt=0)
    """Standard deviation of one sample, in the unit of the signal."""
    correlation: float = Field(default=0.0, gt=-1, lt=1)
    """Correlation of consecutive samples. If it is not 0, the charts use residuals."""


class SignalSettings(Settings):
    """A signal to monitor: a gauge, the rate of a counter, a share, or a mean."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_-]{0,62}$")
    """Value of the `signal` label."""
    metric: str
    """Name of a metric in METRICS.md. The signal is the value of a gauge, the rate per
    second of a counter, or the mean of a histogram since the previous sample."""
    labels: dict[str, str] = Field(default={}, max_length=20)
    """Label values that series must have. Matching counters and histograms are summed.
    For a gauge, only one series may match.
    """
    part: dict[str, str] = Field(default={}, max_length=20)
    """For a counter: use the share of its increase that has these labels as well."""
    every_seconds: float = Field(default=0.0, ge=0, le=86400)
    """Time between two samples, at least the interval of the collector. Set it longer
    than the averaging window of the metric, otherwise samples are correlated.
    """
    charts: tuple[AnyChart, ...] = Field(
        default=(CusumChart(), EwmaChart()), min_length=1, max_length=4
    )
    """Control charts of the signal, each kind at most once."""
    sides: Literal["both", "upper", "lower"] = Field(default="both")
    """Direction of change that raises an alarm."""
    in_control_samples: float = Field(default=10_000, ge=20, le=1e8)
    """Minimum mean number of samples between false alarms of all charts of the signal
    together; nine of ten learnt baselines reach it. The control limits follow from it.
    """
    learn_samples: int = Field(default=200, ge=20, le=100_000)
    """Number of first samples from which the baseline is learnt; the process has to be
    in control during that time. Fewer samples give wider limits and later alarms. The
    false-alarm rate is guaranteed from about 450 samples over two days (more if samples
    are correlated); without a guarantee, triton_spc_info has the reason.
    """
    baseline: GivenBaseline | None = Field(default=None)
    """A known baseline, used instead of a learnt one."""
    least_sigma: float = Field(default=0.0, ge=0)
    """Lower bound of the standard deviation, in the unit of the signal."""
    heal_samples: int = Field(default=30, ge=1, le=100_000)
    """Consecutive samples within the limits that end an alarm."""

    @field_validator("charts")
    @classmethod
    def _each_once(cls, charts: tuple[AnyChart, ...]) -> tuple[AnyChart, ...]:
        kinds: list[str] = [chart.kind for chart in charts]
        twice = sorted({kind for kind in kinds if kinds.count(kind) > 1})
        if twice:
            raise ValueError(f"found {twice[0]!r} twice; list each once")
        return charts

    @model_validator(mode="after")
    def _exists(self) -> SignalSettings:
        if self.metric.startswith("triton_spc_"):
            raise ValueError(
                f"found metric {self.metric!r}; want a gauge, counter or histogram of "
                "METRICS.md other than triton_spc_…"
            )
        spec = judged_metric(
            self.metric,
            {*self.labels, *self.part},
            ("gauge", "counter", "summary", "histogram"),
        )
        if self.part and spec.kind != "counter":
            raise ValueError(
                f"found part with the {spec.kind} {self.metric}; part needs a counter"
            )
        return self


class SpcSettings(CollectorSettings):
    """Process control: Shewhart, EWMA, CUSUM and Page-Hinkley charts of any signal."""

    kind: Literal["spc"] = "spc"
    needs_triton: ClassVar[bool] = False
    signals: tuple[SignalSettings, ...] = Field(default=(), max_length=500)
    """The signals to monitor."""
    state_file: Path | None = Field(default=None)
    """File that keeps baselines and alarms across restarts. Without it, baselines are
    learnt again after each restart, and the process has to be in control at that time.
    """
    save_seconds: float = Field(default=60.0, ge=1, le=86400)
    """Time between two writes of `state_file`."""

    @model_validator(mode="after")
    def _distinct(self) -> SpcSettings:
        names = [signal.name for signal in self.signals]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"found two signals named {twice[0]!r}; want unique names")
        return self

    def build(self, access: Access) -> Collector:
        """The collector."""
        from exporter.features.spc.spc_collector import SpcCollector  # noqa: PLC0415 - only if configured

        return SpcCollector(self, access)
