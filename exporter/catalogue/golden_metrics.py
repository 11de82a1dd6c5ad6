"""Metrics of correctness: golden sets, outputs without labels, estimated accuracy."""

from __future__ import annotations

from typing import Final

from exporter.catalogue.shared import MODEL as _MODEL
from exporter.samples import MetricSpec

_SET: Final = (*_MODEL, "dataset")
_OUTPUT: Final = (*_MODEL, "source")
_BLIND: Final = (
    " An estimate, not a measurement. Blind to concept drift: where the relation of input"
    " to truth changed, it is wrong by any amount and no condition shows it; only labels"
    " do (triton_golden_score_ratio)."
)

GOLDEN_SCORE: Final = MetricSpec(
    "triton_golden_score_ratio",
    "Score of the latest answers to the samples of a golden set, by metric"
    " (accuracy, top_k, precision, recall, f1, auc, match, match:OUTPUT, cosine: of the"
    " numbers of an answer, or of the embedding of its text)."
    " Absent until each sample was sent once.",
    (*_SET, "metric"),
)
GOLDEN_SCORE_CI: Final = MetricSpec(
    "triton_golden_score_ci_ratio",
    "95 % interval (Wilson) of golden scores that are shares of samples (accuracy,"
    " top_k, match, match:OUTPUT), by bound (lower, upper): the model's score on"
    " inputs like these. Samples that are nearly identical count once.",
    (*_SET, "metric", "bound"),
)
GOLDEN_SCORE_EFFECTIVE: Final = MetricSpec(
    "triton_golden_score_effective_samples",
    "Number of independent samples that would give golden scores an interval of the same"
    " width: samples that are nearly identical count once.",
    _SET,
)
GOLDEN_ERROR: Final = MetricSpec(
    "triton_golden_error",
    "Error of the latest answers to the samples of a numeric golden set, by metric"
    " (mae, rmse), in the unit of the label.",
    (*_SET, "metric"),
)
GOLDEN_BASELINE: Final = MetricSpec(
    "triton_golden_baseline_ratio",
    "Score that a loss is measured from: configured, recorded, or that of the first"
    " round.",
    (*_SET, "metric"),
)
GOLDEN_RUN_LENGTH: Final = MetricSpec(
    "triton_golden_in_control_samples",
    "Mean number of samples between false alarms of an accuracy loss, at the"
    " current limit; less than samples_per_false_alarm if no limit achieves that.",
    _SET,
)
GOLDEN_SAMPLES: Final = MetricSpec(
    "triton_golden_samples_total",
    "Golden samples sent, by outcome: right, wrong (not the expected answer or"
    " label), invalid (NaN, Inf, malformed), unanswered, cached (a response cache"
    " may have answered, which proves nothing), unjudged (the model that embeds the"
    " answer failed).",
    (*_SET, "outcome"),
)
GOLDEN_ROUNDS: Final = MetricSpec(
    "triton_golden_rounds_total",
    "Completed rounds: every sample of the set was sent once more.",
    _SET,
)
GOLDEN_FAILING: Final = MetricSpec(
    "triton_golden_failing",
    "1 if a check fails, 0 if it passes: expected (answers are the recorded ones, or pass"
    " the configured `checks`),"
    " labels (accuracy is not below its baseline). Absent if unknown.",
    (*_SET, "check"),
)
GOLDEN_USABLE: Final = MetricSpec(
    "triton_golden_usable",
    "1 if the golden file could be read and fits the model, else 0; the log has the"
    " reason, with row and field.",
    _SET,
)
GOLDEN_INFO: Final = MetricSpec(
    "triton_golden_info",
    "The golden set in use, with the SHA-256 of its file.",
    (*_SET, "sha256"),
)
GOLDEN_BUDGET: Final = MetricSpec(
    "triton_golden_budget_used_ratio",
    "Golden requests of the last minute as a share of all requests to the model, by"
    " resource (requests, busy: seconds on the wire over busy seconds).",
    (*_SET, "of"),
)
OUTPUT_CONFIDENCE: Final = MetricSpec(
    "triton_output_confidence_ratio",
    "Mean confidence (largest probability) of the latest answers, by source:"
    " golden:DATASET, production (mirrored).",
    _OUTPUT,
)
OUTPUT_CLASS: Final = MetricSpec(
    "triton_output_class_ratio",
    "Share of the latest answers that predict each class, up to class 99.",
    (*_OUTPUT, "class"),
)
OUTPUT_ROWS: Final = MetricSpec(
    "triton_output_rows_total",
    "Answers to mirrored production requests that were evaluated.",
    _MODEL,
)
ESTIMATED_ACCURACY: Final = MetricSpec(
    "triton_estimated_accuracy_ratio",
    "Accuracy of the latest production answers, estimated without labels from their"
    " confidence as calibrated on the golden set." + _BLIND,
    _MODEL,
)
ESTIMATED_ACCURACY_CI: Final = MetricSpec(
    "triton_estimated_accuracy_ci_ratio",
    "95 % interval of the estimated accuracy, by bound (lower, upper). Answers to equal"
    " inputs count once; wider by the share of answers whose confidence is unlike the"
    " golden ones." + _BLIND,
    (*_MODEL, "bound"),
)
ESTIMATED_ACCURACY_EFFECTIVE: Final = MetricSpec(
    "triton_estimated_accuracy_effective_samples",
    "Number of independent answers that the latest production answers are worth to the"
    " estimated accuracy: answers to equal inputs count less.",
    _MODEL,
)
ESTIMATED_ACCURACY_VALID: Final = MetricSpec(
    "triton_estimated_accuracy_valid",
    "1 where a condition of the estimate holds, 0 where not, absent where unknown:"
    " calibrated (50 golden samples without copies), enough_outputs (answers to 50 inputs),"
    " within_calibration (at most 5 % of confidences below all golden ones), drift_watched"
    " (a drift window of the model's inputs was judged), drift_guaranteed (its reference"
    " keeps the guarantee), no_drift (no alarm; absent where inputs are not watched),"
    " golden_agrees (no golden set lost accuracy or contradicts the calibration). Any 0:"
    " do not rely on it." + _BLIND,
    (*_MODEL, "condition"),
)
