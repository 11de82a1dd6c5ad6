"""Drift and data quality: what moved, by how much, and whether that can be relied on."""

from __future__ import annotations

from typing import Any

from grafana.frame import choice, framed
from grafana.panels import (
    Query,
    Step,
    columns,
    good_below,
    heat,
    highest,
    latest,
    number,
    rate,
    series,
)
from grafana.tables import bars, rows

_QUIET = (Step(None, "green"), Step(1, "red"))


def build() -> Any:
    """The dashboard."""
    return framed(
        "drift",
        "Drift and data quality",
        "Inputs and outputs of models compared with their references: alarms with a "
        "guaranteed false-alarm rate, effect sizes and their values by chance, data "
        "quality, and when to retrain.",
        ("Alarms", _alarms()),
        ("Magnitude", _scores()),
        ("Live data and reference", _distributions()),
        ("Data quality", _quality()),
        ("Coverage", _watches()),
        by_model="triton_drift_rows_total",
        choices=(
            choice(
                "feature",
                "Feature",
                'label_values(triton_feature_reference_ratio{model=~"$model"}, feature)',
            ),
            choice(
                "reference",
                "Reference",
                'label_values(triton_feature_reference_ratio{model=~"$model"}, reference)',
            ),
        ),
    )


def _alarms() -> list[Any]:
    return [
        number(
            "Models drifted",
            "Models with a drift alarm on any sidecar. While nothing changes, a false alarm comes"
            " no more often than configured, once a month by default.",
            "short",
            Query(
                "count(max by (model) (triton_model_drift_alarm<m>) == 1) or vector(0)"
            ),
            steps=_QUIET,
            alerts=["TritonDriftAlarm"],
        ),
        number(
            "Guarantee not met",
            "Inputs or outputs whose reference is too short, or not in time order, to guarantee"
            " the false-alarm rate.",
            "short",
            Query(
                "count(min by (model, side) (triton_drift_promise_kept<m>) == 0)"
                " or vector(0)"
            ),
            steps=(Step(None, "green"), Step(1, "yellow")),
        ),
        number(
            "References refused",
            "Inputs or outputs that are not watched, since their reference does not fit;"
            " the log and the status page list the differences.",
            "short",
            Query(
                "count(max by (model, side)"
                ' (triton_drift_state_info<m,state="refused">)) or vector(0)'
            ),
            steps=_QUIET,
            alerts=["TritonDriftReferenceRefused"],
        ),
        number(
            "Retrain within",
            "Earliest median forecast; unknown while there is no trend.",
            "s",
            Query('min(triton_retrain_eta_seconds<m,bound="median">)'),
            span=12,
            alerts=["TritonDriftRetrainSoon"],
        ),
        series(
            "Evidence by feature",
            "Natural logarithm of the evidence that a feature changed; the ten "
            "highest.",
            "short",
            highest("triton_feature_drift_evidence<m>"),
            least=None,
        ),
        series(
            "Evidence and threshold by model",
            "An alarm is raised when the evidence reaches the threshold.",
            "short",
            latest("max", "triton_model_drift_evidence<m>", "model, side"),
            latest(
                "max",
                "triton_model_drift_evidence_threshold<m>",
                "model, side",
                legend="threshold of {{model}} {{side}}",
            ),
            least=None,
        ),
    ]


def _scores() -> list[Any]:
    score = 'triton_feature_drift_score<m,statistic="{}">'.format
    return [
        heat(
            "PSI by feature over time",
            "Brighter colours mean a larger distance from the reference at that time.",
            "short",
            latest("max", score("psi"), "model, feature"),
            buckets=False,
        ),
        rows(
            "Features",
            "Distances of the latest windows. For PSI, also the value that 99.9 % of "
            "windows of this size stay below while nothing changes.",
            "short",
            *columns(
                "max",
                "model, feature",
                {
                    "PSI": score("psi"),
                    "PSI by chance": "triton_feature_drift_null"
                    '<m,statistic="psi",bound="upper">',
                    "Jensen-Shannon": score("jensen_shannon"),
                    "Wasserstein / sigma": score("wasserstein"),
                    "alarm": "triton_feature_drift_alarm<m>",
                },
            ),
            yes_no=("alarm",),
            steps=_QUIET,
            colored=("alarm",),
        ),
        series(
            "PSI beyond chance",
            "PSI minus its mean while nothing changes; the ten largest.",
            "short",
            highest(
                'triton_feature_drift_score<m,statistic="psi"> - ignoring (bound)'
                ' triton_feature_drift_null<m,statistic="psi",bound="mean">'
            ),
            least=None,
        ),
        series(
            "Distance in standard deviations",
            "Wasserstein-1: how far values moved on average; the ten largest.",
            "short",
            highest(score("wasserstein")),
        ),
    ]


def _distributions() -> list[Any]:
    matchers = 'feature=~"$feature",reference=~"$reference"'
    rows_ = f"increase(triton_feature_observations_total<m,{matchers}>[1h])"
    return [
        bars(
            "$feature",
            "Share of the rows of the last hour, over all replicas, in each bin of "
            "the reference, for features in export_bins. Replicas with another "
            "reference have other bins: select one reference at a time.",
            "percentunit",
            Query(
                "max by (bin, reference)"
                f" (triton_feature_reference_ratio<m,{matchers}>)",
                "reference share",
            ),
            Query(
                f"sum by (bin, reference) ({rows_}) / on (reference) group_left ()"
                f" sum by (reference) ({rows_})",
                "live share",
            ),
            along="bin",
            repeat="feature",
        )
    ]


def _quality() -> list[Any]:
    shares = (
        ("Missing", "triton_feature_missing_ratio", "NaN, empty, or not sent."),
        (
            "Out of range",
            "triton_feature_out_of_range_ratio",
            "Beyond the middle 99.9 % of the reference; a clean window has about 0.1 %.",
        ),
        (
            "Unseen categories",
            "triton_feature_unseen_category_ratio",
            "Values that are not in the reference.",
        ),
    )
    return [
        *(
            series(
                title,
                f"Share of rows in the latest windows, the ten largest. {what}",
                "percentunit",
                highest(f"{metric}<m>"),
                steps=good_below(0.01, 0.05),
            )
            for title, metric, what in shares
        ),
        series(
            "Schema violations",
            "Requests per second whose tensors do not match the reference, by kind.",
            "reqps",
            rate("triton_schema_violations_total<m>", "model, kind"),
            alerts=["TritonDriftSchemaViolations"],
        ),
    ]


def _watches() -> list[Any]:
    return [
        series(
            "Rows seen by the taps",
            "After sampling. If it is empty while there are requests, mirroring does "
            "not work.",
            "cps",
            rate("triton_drift_rows_total<m>", "model, side"),
            alerts=["TritonDriftNoTraffic"],
        ),
        rows(
            "References and windows",
            "Of the inputs and outputs of each model, and whether the false-alarm rate is guaranteed.",
            "short",
            *columns(
                "max",
                "model, side",
                {
                    "reference rows": "triton_drift_reference_rows<m>",
                    "window rows": "triton_drift_window_rows<m>",
                },
            ),
            latest(
                "min",
                "triton_drift_promise_kept<m>",
                "model, side",
                legend="guaranteed",
            ),
            span=12,
            yes_no=("guaranteed",),
        ),
        series(
            "Age of the saved state",
            "Seconds since the state of a model was last saved; a restart loses the "
            "data since then. Overdue: seconds since it should have been saved. Absent "
            "without a state file.",
            "s",
            Query(
                "time() - max by (model, side, instance)"
                " (tritonwatch_drift_state_saved_timestamp_seconds<m>)",
                "{{instance}} {{model}} {{side}}",
            ),
            Query(
                "clamp_min(time() - max by (model, side, instance)"
                " (tritonwatch_drift_state_due_timestamp_seconds<m>), 0)",
                "{{instance}} {{model}} {{side}} overdue",
            ),
            span=24,
            alerts=["TritonDriftStateNotSaved"],
        ),
    ]
