"""Metrics of drift and data quality of models' inputs and outputs."""

from __future__ import annotations

from typing import Final

from exporter.samples import MetricSpec

_FEATURE: Final = ("model", "feature")
_SIDE: Final = ("model", "side")

FEATURE_DRIFT_SCORE: Final = MetricSpec(
    "triton_feature_drift_score",
    "Distance between the latest windows and the reference. An effect size, no alarm:"
    " read it beside triton_feature_drift_null. Absent where it cannot be computed.",
    (*_FEATURE, "statistic"),
)
FEATURE_DRIFT_NULL: Final = MetricSpec(
    "triton_feature_drift_null",
    "What that distance is while nothing changes, for windows of this size: its mean,"
    " and an upper bound that 99.9 % of windows stay below.",
    (*_FEATURE, "statistic", "bound"),
)
FEATURE_DRIFT_CLASSIC: Final = MetricSpec(
    "triton_feature_drift_threshold_exceeded",
    "1 if the distance passes the field's rule of thumb, whatever the window's size;"
    " with classic_thresholds only.",
    (*_FEATURE, "statistic"),
)
FEATURE_DRIFT_EVIDENCE: Final = MetricSpec(
    "triton_feature_drift_evidence",
    "Natural logarithm of the evidence that the feature changed. Absent before a window"
    " closed.",
    _FEATURE,
)
FEATURE_DRIFT_ALARM: Final = MetricSpec(
    "triton_feature_drift_alarm",
    "1 while the model's alarm stands and names this feature, else 0.",
    _FEATURE,
)
MODEL_DRIFT_ALARM: Final = MetricSpec(
    "triton_model_drift_alarm",
    "1 while the model's data differ from the reference, else 0: raised no more often"
    " than the configured false alarms a month while nothing changes.",
    ("model",),
)
MODEL_DRIFT_ALARMS: Final = MetricSpec(
    "triton_model_drift_alarms_total",
    "Alarms raised since this process started.",
    ("model",),
)
MODEL_DRIFT_START: Final = MetricSpec(
    "triton_model_drift_start_timestamp_seconds",
    "When the change most likely began; absent without an alarm.",
    ("model",),
)
MODEL_DRIFT_EVIDENCE: Final = MetricSpec(
    "triton_model_drift_evidence",
    "Natural logarithm of the evidence that anything changed.",
    _SIDE,
)
MODEL_DRIFT_THRESHOLD: Final = MetricSpec(
    "triton_model_drift_evidence_threshold",
    "Natural logarithm of the evidence at which the alarm is raised.",
    _SIDE,
)
FEATURE_MISSING: Final = MetricSpec(
    "triton_feature_missing_ratio",
    "Share of rows in the latest windows without a value: NaN, empty, or absent.",
    _FEATURE,
)
FEATURE_INFINITE: Final = MetricSpec(
    "triton_feature_infinite_ratio",
    "Share of rows in the latest windows with an infinite value; numeric features.",
    _FEATURE,
)
FEATURE_OUT_OF_RANGE: Final = MetricSpec(
    "triton_feature_out_of_range_ratio",
    "Share of rows in the latest windows beyond the middle 99.9 % of the reference;"
    " numeric features. A clean window has about 0.001. Infinities count apart.",
    _FEATURE,
)
FEATURE_UNSEEN: Final = MetricSpec(
    "triton_feature_unseen_category_ratio",
    "Share of rows in the latest windows with a value the reference never had;"
    " categorical features. Absent where the reference had too many values to know.",
    _FEATURE,
)
FEATURE_CONSTANT: Final = MetricSpec(
    "triton_feature_constant",
    "1 if the feature stands still in the latest windows and did not in the reference.",
    _FEATURE,
)
SCHEMA_VIOLATIONS: Final = MetricSpec(
    "triton_schema_violations_total",
    "Requests seen by the taps whose tensors are not as the reference has them: absent,"
    " extra, dtype, type (no numbers where numbers belong), shape.",
    ("model", "kind"),
)
FEATURE_OBSERVATIONS: Final = MetricSpec(
    "triton_feature_observations_total",
    "Values by bin of the reference, for features of export_bins. Sum over replicas,"
    " then compare with triton_feature_reference_ratio of the same reference.",
    (*_FEATURE, "bin", "reference"),
)
FEATURE_REFERENCE: Final = MetricSpec(
    "triton_feature_reference_ratio",
    "The reference's share of the bin, half a row added to each so that no logarithm"
    " is infinite. The label reference is the beginning of the profile's checksum: bins"
    " of different references cannot be added.",
    (*_FEATURE, "bin", "reference"),
)
RETRAIN_ETA: Final = MetricSpec(
    "triton_retrain_eta_seconds",
    "Time until the configured floor or limit is passed (bound lower, median, upper: a"
    " 90 % interval; upper is +Inf where the trend may slow down for good). Only while"
    " there is a straight trend towards the limit; absent otherwise.",
    ("model", "bound"),
)
RETRAIN_OUTLOOK: Final = MetricSpec(
    "triton_retrain_outlook_info",
    "What the past supports: too_short, flat (no trend), shocks (the level shifted), steady"
    " (a trend away from the limit), decay (see triton_retrain_eta_seconds), curved (a"
    " trend that speeds up or slows down: no date, since no straight line foretells it),"
    " below (passed already).",
    ("model", "signal", "outlook"),
)
DRIFT_STATE: Final = MetricSpec(
    "triton_drift_state_info",
    "What the watch does: waiting (for the model), learning, watching, refused (the"
    " reference does not fit the model; the log and the status page list why).",
    (*_SIDE, "state"),
)
DRIFT_PROMISE: Final = MetricSpec(
    "triton_drift_promise_kept",
    "1 if the promised rate of false alarms can be relied on; 0 if the reference is too"
    " short, lacks a day of the week or is not in the order of time (the status page says"
    " why).",
    _SIDE,
)
DRIFT_REFERENCE_ROWS: Final = MetricSpec(
    "triton_drift_reference_rows",
    "Rows of the reference; while it is learnt, those that came so far.",
    _SIDE,
)
DRIFT_ROWS: Final = MetricSpec(
    "triton_drift_rows_total",
    "Rows seen by the taps since this process started.",
    _SIDE,
)
DRIFT_WINDOWS: Final = MetricSpec(
    "triton_drift_windows_total", "Windows judged since this process started.", _SIDE
)
DRIFT_WINDOW_ROWS: Final = MetricSpec(
    "triton_drift_window_rows",
    "Rows of the latest windows, which scores and shares are of.",
    _SIDE,
)
DRIFT_WINDOW_TIMESTAMP: Final = MetricSpec(
    "triton_drift_window_timestamp_seconds", "When the latest window closed.", _SIDE
)
DRIFT_FEATURES: Final = MetricSpec(
    "triton_drift_features",
    "Features watched, by whether they have series of their own (max_features).",
    (*_SIDE, "exposed"),
)
DRIFT_SAVED: Final = MetricSpec(
    "tritonwatch_drift_state_saved_timestamp_seconds",
    "When the state was last written to disk; absent where none is kept.",
    _SIDE,
)
