"""Settings of control charts over exposed signals."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, field_validator, model_validator

from exporter.access.collector_base import CollectorSettings
from exporter.catalogue.judged_metrics import judged_metric
from exporter.settings import Settings

if TYPE_CHECKING:
    from exporter.access.collector_base import Access
    from exporter.features.spc.spc_collector import SpcCollector


class ShewhartChart(Settings):
    """Each sample by itself: large shifts at once, small ones hardly ever."""

    kind: Literal["shewhart"] = "shewhart"


class EwmaChart(Settings):
    """A weighted mean of the samples: detects small shifts, and is easy to read."""

    kind: Literal["ewma"] = "ewma"
    weight: float = Field(default=0.2, ge=0.02, le=1)
    """Weight of the latest sample; smaller weights detect smaller shifts."""


class CusumChart(Settings):
    """A cumulative sum: nothing is faster for a lasting shift of the size named."""

    kind: Literal["cusum"] = "cusum"
    shift_sigma: float = Field(default=1.0, ge=0.1, le=10)
    """The shift it is made for, in standard deviations."""
    fast_initial_response: bool = Field(default=True)
    """Start half way to the limit: a shift at the start is detected sooner."""


class PageHinkleyChart(Settings):
    """A cumulative sum that keeps learning its mean: slow drift raises no alarm."""

    kind: Literal["page_hinkley"] = "page_hinkley"
    shift_sigma: float = Field(default=1.0, ge=0.1, le=10)
    """The shift it is made for, in standard deviations."""


AnyChart = Annotated[
    ShewhartChart | EwmaChart | CusumChart | PageHinkleyChart,
    Field(discriminator="kind"),
]


class GivenBaseline(Settings):
    """A baseline that is known in advance."""

    mean: float
    """Mean, in the signal's own unit."""
    sigma: float = Field(gt=0)
    """Standard deviation of one sample, in the signal's own unit."""
    correlation: float = Field(default=0.0, gt=-1, lt=1)
    """Correlation of neighbouring samples; if not 0, the charts run on residuals."""


class SignalSettings(Settings):
    """One number under control: a gauge, the rate of a counter, a share, or a mean."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_-]{0,62}$")
    """Value of the `signal` label."""
    metric: str
    """A metric of METRICS.md. A gauge is taken as it is, a counter by its rate a second,
    a histogram by the mean of what came since the last sample."""
    labels: dict[str, str] = Field(default={}, max_length=20)
    """Label values that series must have. Matching counters and histograms are summed; of a
    gauge only one series may match.
    """
    part: dict[str, str] = Field(default={}, max_length=20)
    """For a counter: use the share of its increase that has these labels as well."""
    every_seconds: float = Field(default=0.0, ge=0, le=86400)
    """Time between two samples; the collector's interval if shorter. Choose it longer than
    the metric's own averaging window, or samples are correlated.
    """
    charts: tuple[AnyChart, ...] = Field(
        default=(CusumChart(), EwmaChart()), min_length=1, max_length=4
    )
    """The signal's control charts; each kind once."""
    sides: Literal["both", "upper", "lower"] = Field(default="both")
    """Direction of change that raises an alarm."""
    in_control_samples: float = Field(default=10_000, ge=20, le=1e8)
    """Minimum mean number of samples between false alarms of all its charts together,
    for nine learnt baselines of ten. The limits follow from it."""
    learn_samples: int = Field(default=200, ge=20, le=100_000)
    """Number of first samples that the baseline is learnt from: the process must be in control
    then. Fewer samples give wider limits and later alarms. The false-alarm rate is guaranteed
    from about 450 samples over two days on (more if they are correlated); before that
    triton_spc_info has the reason why not.
    """
    baseline: GivenBaseline | None = Field(default=None)
    """A known baseline, instead of learning it."""
    least_sigma: float = Field(default=0.0, ge=0)
    """The standard deviation is taken to be no less, in the signal's own unit."""
    heal_samples: int = Field(default=30, ge=1, le=100_000)
    """Consecutive samples within the limits that end an alarm."""

    @field_validator("charts")
    @classmethod
    def _each_once(cls, charts: tuple[AnyChart, ...]) -> tuple[AnyChart, ...]:
        kinds: list[str] = [chart.kind for chart in charts]
        twice = sorted({kind for kind in kinds if kinds.count(kind) > 1})
        if twice:
            raise ValueError(f"found {twice[0]!r} twice; each may stand once")
        return charts

    @model_validator(mode="after")
    def _exists(self) -> SignalSettings:
        if self.metric.startswith("triton_spc_"):
            raise ValueError(
                f"found metric {self.metric!r}; want a gauge, counter or histogram of "
                "METRICS.md that is not of process control itself"
            )
        spec = judged_metric(
            self.metric,
            {*self.labels, *self.part},
            ("gauge", "counter", "summary", "histogram"),
        )
        if self.part and spec.kind != "counter":
            raise ValueError(
                f"found part with the {spec.kind} {self.metric}; it goes with counters"
            )
        return self


class SpcSettings(CollectorSettings):
    """Process control: Shewhart, EWMA, CUSUM and Page-Hinkley charts over any signal."""

    kind: Literal["spc"] = "spc"
    signals: tuple[SignalSettings, ...] = Field(default=(), max_length=500)
    """The signals under control."""
    state_file: Path | None = Field(default=None)
    """File that keeps baselines and alarms over restarts; without it each restart learns
    them again, and assumes that the process is in control then.
    """
    save_seconds: float = Field(default=60.0, ge=1, le=86400)
    """Time between two writes of that file."""

    @model_validator(mode="after")
    def _distinct(self) -> SpcSettings:
        names = [signal.name for signal in self.signals]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(
                f"found two signals called {twice[0]!r}; each may stand once"
            )
        return self

    def build(self, access: Access) -> SpcCollector:
        """The collector."""
        from exporter.features.spc.spc_collector import SpcCollector  # noqa: PLC0415 - only if configured

        return SpcCollector(self, access)
