"""Metrics of drift and data quality of models' inputs and outputs."""

from __future__ import annotations

from typing import Final

from exporter.samples import MetricSpec

_FEATURE: Final = ("model", "feature")
_SIDE: Final = ("model", "side")

FEATURE_DRIFT_SCORE: Final = MetricSpec(
    "triton_feature_drift_score",
    "Distance between the latest windows and the reference. An effect size, not an"
    " alarm: compare it with triton_feature_drift_null. Absent if it cannot be"
    " computed.",
    (*_FEATURE, "statistic"),
)
FEATURE_DRIFT_NULL: Final = MetricSpec(
    "triton_feature_drift_null",
    "The same distance when nothing has changed, for windows of this size: its"
    " mean, and an upper bound that 99.9 % of windows stay below.",
    (*_FEATURE, "statistic", "bound"),
)
FEATURE_DRIFT_CLASSIC: Final = MetricSpec(
    "triton_feature_drift_threshold_exceeded",
    "1 if the distance exceeds the field's rule of thumb, whatever the size of the"
    " window; with classic_thresholds only.",
    (*_FEATURE, "statistic"),
)
FEATURE_DRIFT_EVIDENCE: Final = MetricSpec(
    "triton_feature_drift_evidence",
    "Natural logarithm of the evidence that the feature drifted. Absent until a"
    " window has closed.",
    _FEATURE,
)
FEATURE_DRIFT_ALARM: Final = MetricSpec(
    "triton_feature_drift_alarm",
    "1 if the model's alarm is raised and names this feature, else 0.",
    _FEATURE,
)
MODEL_DRIFT_ALARM: Final = MetricSpec(
    "triton_model_drift_alarm",
    "1 if the model's data differ from the reference, else 0. While nothing"
    " changes, it is raised at most as often as the configured false alarms per"
    " month.",
    ("model",),
)
MODEL_DRIFT_ALARMS: Final = MetricSpec(
    "triton_model_drift_alarms_total",
    "Alarms raised since this process started.",
    ("model",),
)
MODEL_DRIFT_START: Final = MetricSpec(
    "triton_model_drift_start_timestamp_seconds",
    "Most likely start of the change; absent without an alarm.",
    ("model",),
)
MODEL_DRIFT_EVIDENCE: Final = MetricSpec(
    "triton_model_drift_evidence",
    "Natural logarithm of the evidence that any feature drifted.",
    _SIDE,
)
MODEL_DRIFT_THRESHOLD: Final = MetricSpec(
    "triton_model_drift_evidence_threshold",
    "Natural logarithm of the evidence at which the alarm is raised.",
    _SIDE,
)
FEATURE_MISSING: Final = MetricSpec(
    "triton_feature_missing_ratio",
    "Share of rows in the latest windows without a value: NaN, empty or absent.",
    _FEATURE,
)
FEATURE_INFINITE: Final = MetricSpec(
    "triton_feature_infinite_ratio",
    "Share of rows in the latest windows with an infinite value; numeric features.",
    _FEATURE,
)
FEATURE_OUT_OF_RANGE: Final = MetricSpec(
    "triton_feature_out_of_range_ratio",
    "Share of rows in the latest windows outside the middle 99.9 % of the"
    " reference, for numeric features; about 0.001 without a change. Infinite values"
    " are counted separately.",
    _FEATURE,
)
FEATURE_UNSEEN: Final = MetricSpec(
    "triton_feature_unseen_category_ratio",
    "Share of rows in the latest windows with a value that is not in the reference,"
    " for categorical features. Absent if the reference had too many values to"
    " store.",
    _FEATURE,
)
FEATURE_CONSTANT: Final = MetricSpec(
    "triton_feature_constant",
    "1 if the feature is constant in the latest windows and was not in the reference.",
    _FEATURE,
)
SCHEMA_VIOLATIONS: Final = MetricSpec(
    "triton_schema_violations_total",
    "Requests received by the taps whose tensors do not match the reference, by"
    " kind: absent, extra, dtype, type (not numeric), shape.",
    ("model", "kind"),
)
FEATURE_OBSERVATIONS: Final = MetricSpec(
    "triton_feature_observations_total",
    "Values by bin of the reference, for the features in export_bins. Sum over"
    " replicas, then compare with triton_feature_reference_ratio of the same"
    " reference.",
    (*_FEATURE, "bin", "reference"),
)
FEATURE_REFERENCE: Final = MetricSpec(
    "triton_feature_reference_ratio",
    "Share of the bin in the reference, with half a row added to each bin so that"
    " no logarithm is infinite. The label reference is the beginning of the"
    " profile's checksum: bins of different references cannot be added.",
    (*_FEATURE, "bin", "reference"),
)
RETRAIN_ETA: Final = MetricSpec(
    "triton_retrain_eta_seconds",
    "Time until the configured floor or limit is crossed (bound lower, median,"
    " upper: a 90 % interval; upper is +Inf if the trend may level off). Present"
    " only with a straight trend towards the limit.",
    ("model", "bound"),
)
RETRAIN_ETA_EFFECTIVE: Final = MetricSpec(
    "triton_retrain_eta_effective_periods",
    "Number of independent periods of the history (forecast.every_seconds) that would"
    " give triton_retrain_eta_seconds the same interval: slow fluctuations make them"
    " fewer.",
    ("model",),
)
RETRAIN_OUTLOOK: Final = MetricSpec(
    "triton_retrain_outlook_info",
    "What the history supports: too_short, flat (no trend), shocks (the level"
    " shifted), steady (a trend away from the limit), decay (see"
    " triton_retrain_eta_seconds), curved (a trend that speeds up or slows down, so"
    " no date can be given), below (already crossed).",
    ("model", "signal", "outlook"),
)
DRIFT_STATE: Final = MetricSpec(
    "triton_drift_state_info",
    "State of drift detection: waiting (for the model), learning, watching, refused"
    " (the reference does not fit the model; the log and the status page have the"
    " reason).",
    (*_SIDE, "state"),
)
DRIFT_PROMISE: Final = MetricSpec(
    "triton_drift_promise_kept",
    "1 if the false-alarm guarantee holds; 0 if the reference is too short, lacks a"
    " weekday or is not in time order (the status page has the reason).",
    _SIDE,
)
DRIFT_REFERENCE_ROWS: Final = MetricSpec(
    "triton_drift_reference_rows",
    "Rows of the reference; while it is learnt, rows received so far.",
    _SIDE,
)
DRIFT_ROWS: Final = MetricSpec(
    "triton_drift_rows_total",
    "Rows received by the taps since this process started.",
    _SIDE,
)
DRIFT_WINDOWS: Final = MetricSpec(
    "triton_drift_windows_total", "Windows evaluated since this process started.", _SIDE
)
DRIFT_WINDOW_ROWS: Final = MetricSpec(
    "triton_drift_window_rows",
    "Rows in the latest windows, from which scores and shares are computed.",
    _SIDE,
)
DRIFT_WINDOW_TIMESTAMP: Final = MetricSpec(
    "triton_drift_window_timestamp_seconds",
    "Time at which the latest window closed.",
    _SIDE,
)
DRIFT_SAVED: Final = MetricSpec(
    "tritonwatch_drift_state_saved_timestamp_seconds",
    "Time at which the state was last written to disk; absent without a state file.",
    _SIDE,
)
DRIFT_SAVE_BY: Final = MetricSpec(
    "tritonwatch_drift_state_due_timestamp_seconds",
    "Time by which the state should be written again, state_seconds after the last write."
    " If it is long past, the state cannot be written. Absent without a state file.",
    _SIDE,
)
