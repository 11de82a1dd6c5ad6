"""Process control: charts over signals that are exposed."""

from __future__ import annotations

from typing import Final

from exporter.samples import MetricSpec

_CHART: Final = ("signal", "chart")

SPC_STATISTIC: Final = MetricSpec(
    "triton_spc_statistic",
    "Statistic of a chart, in standard deviations of the signal; negative where it points"
    " down. Absent while the baseline is learnt.",
    _CHART,
)
SPC_LIMIT: Final = MetricSpec(
    "triton_spc_limit",
    "Control limit by side (upper, lower), set from the wanted in-control run length.",
    (*_CHART, "side"),
)
SPC_ALARM: Final = MetricSpec(
    "triton_spc_alarm",
    "1 from the sample beyond the limit until it is acknowledged or has been well for"
    " as many samples as configured, else 0.",
    _CHART,
)
SPC_ALARMS: Final = MetricSpec(
    "triton_spc_alarms_total", "Alarms begun.", _CHART, outlives_process=True
)
SPC_SAMPLES: Final = MetricSpec(
    "triton_spc_samples_total",
    "Samples of the signal taken, those of the baseline among them.",
    ("signal",),
    outlives_process=True,
)
SPC_LEARNING: Final = MetricSpec(
    "triton_spc_learning",
    "1 while the baseline of the signal is learnt and nothing is judged, else 0.",
    ("signal",),
)
SPC_MEAN: Final = MetricSpec(
    "triton_spc_baseline_mean",
    "Mean of the signal in control, in the signal's own unit.",
    ("signal",),
)
SPC_SIGMA: Final = MetricSpec(
    "triton_spc_baseline_sigma",
    "Standard deviation of one sample of the signal in control, in the signal's own unit.",
    ("signal",),
)
SPC_CORRELATION: Final = MetricSpec(
    "triton_spc_autocorrelation_ratio",
    "Correlation of neighbouring samples in the baseline; where it is not 0 the charts"
    " run on residuals.",
    ("signal",),
)
SPC_RUN_LENGTH: Final = MetricSpec(
    "triton_spc_in_control_samples",
    "Mean number of samples between false alarms of all charts of the signal, by bound:"
    " nominal, if mean, spread and correlation learnt were exact; lower, the wanted number,"
    " which nine baselines of ten keep at least. Absent where that cannot be said:"
    " triton_spc_info has the reason.",
    ("signal", "bound"),
)
SPC_INFO: Final = MetricSpec(
    "triton_spc_info",
    "What the limits of a signal rest on: assumption is given, independent, residuals,"
    " doubtful (correlated beyond that: false alarms come oftener) or constant; normal is"
    " whether the baseline's distribution is; refused is why there is no lower bound of"
    " triton_spc_in_control_samples: none (there is one), short_time (below two days, no"
    " daily wave shows), few_samples, correlated, tails, constant or old_state.",
    ("signal", "metric", "assumption", "normal", "refused"),
)
