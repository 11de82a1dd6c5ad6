"""Process control: charts over signals that are exposed."""

from __future__ import annotations

from typing import Final

from exporter.samples import MetricSpec

_CHART: Final = ("signal", "chart")

SPC_STATISTIC: Final = MetricSpec(
    "triton_spc_statistic",
    "Statistic of a control chart, in standard deviations of the signal; negative"
    " for downward shifts. Absent while the baseline is learnt, and after two"
    " missed samples.",
    _CHART,
)
SPC_LIMIT: Final = MetricSpec(
    "triton_spc_limit",
    "Control limit by side (upper, lower), set from the configured in-control run"
    " length.",
    (*_CHART, "side"),
)
SPC_ALARM: Final = MetricSpec(
    "triton_spc_alarm",
    "1 from the first sample beyond the limit until the alarm is acknowledged or"
    " the configured number of samples were within limits, else 0. Without an alarm"
    " absent after two missed samples.",
    _CHART,
)
SPC_ALARMS: Final = MetricSpec(
    "triton_spc_alarms_total", "Alarms raised.", _CHART, outlives_process=True
)
SPC_SAMPLES: Final = MetricSpec(
    "triton_spc_samples_total",
    "Samples of the signal, including those of the baseline.",
    ("signal",),
    outlives_process=True,
)
SPC_LEARNING: Final = MetricSpec(
    "triton_spc_learning",
    "1 while the baseline of the signal is learnt and no alarm can be raised, else 0.",
    ("signal",),
)
SPC_MEAN: Final = MetricSpec(
    "triton_spc_baseline_mean",
    "Mean of the signal in control, in the unit of the signal.",
    ("signal",),
)
SPC_SIGMA: Final = MetricSpec(
    "triton_spc_baseline_sigma",
    "Standard deviation of one sample of the signal in control, in the unit of the"
    " signal.",
    ("signal",),
)
SPC_CORRELATION: Final = MetricSpec(
    "triton_spc_autocorrelation_ratio",
    "Correlation of consecutive samples in the baseline; if it is not 0, the charts"
    " use residuals.",
    ("signal",),
)
SPC_EFFECTIVE: Final = MetricSpec(
    "triton_spc_baseline_effective_samples",
    "Number of independent samples that would give a baseline as precise: correlated"
    " ones count less. The lower bound of triton_spc_in_control_samples needs 400. 0"
    " if the correlation is too long to be measured; absent of a configured baseline.",
    ("signal",),
)
SPC_RUN_LENGTH: Final = MetricSpec(
    "triton_spc_in_control_samples",
    "Mean number of samples between false alarms of all charts of the signal, by"
    " bound. nominal: if the learnt mean, spread and correlation were exact; lower:"
    " the configured number, which nine of ten baselines reach if samples are normal"
    " and only consecutive ones are correlated. Absent if the baseline shows otherwise:"
    " triton_spc_info has the reason. A slow change weaker than the noise may go"
    " undetected.",
    ("signal", "bound"),
)
SPC_INFO: Final = MetricSpec(
    "triton_spc_info",
    "Assumptions of the limits of a signal. assumption is given, independent,"
    " residuals, doubtful (correlated beyond that, so that false alarms are more"
    " frequent) or constant; normal is whether the baseline is normally distributed;"
    " refused is why triton_spc_in_control_samples has no lower bound: none (it has"
    " one), short_time (less than two days, which hides a daily cycle), few_samples,"
    " correlated, tails, constant or old_state.",
    ("signal", "metric", "assumption", "normal", "refused"),
)
