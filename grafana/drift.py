"""Drift and data quality: what moved, by how much, and whether that can be relied on."""

from __future__ import annotations

from typing import Any

from grafana.frame import choice, framed
from grafana.panels import (
    Query,
    Step,
    bars,
    explained,
    good_below,
    heat,
    number,
    rows,
    series,
)

_QUIET = (Step(None, "green"), Step(1, "red"))


def build() -> Any:
    """The dashboard."""
    return framed(
        "drift",
        "Drift and data quality",
        "What models are asked and answer beside their references: alarms with a"
        " promised rate of false ones, effect sizes beside what chance gives, data"
        " quality, and when to train again.",
        ("Alarms", _alarms()),
        ("How much", _scores()),
        ("Live data beside the reference", _distributions()),
        ("Data quality", _quality()),
        ("What is watched", _watches()),
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
        explained(
            number(
                "Models that moved",
                "Models whose alarm stands on any sidecar. While nothing changes one comes no"
                " more often than configured, once a month by default.",
                "short",
                Query(
                    "count(max by (model) (triton_model_drift_alarm<m>) == 1) or vector(0)"
                ),
                steps=_QUIET,
            ),
            "TritonDriftAlarm",
        ),
        number(
            "Promise not kept",
            "Sides of models whose reference is too short, or not in the order of time,"
            " for the promised rate of false alarms to be relied on.",
            "short",
            Query(
                "count(min by (model, side) (triton_drift_promise_kept<m>) == 0)"
                " or vector(0)"
            ),
            steps=(Step(None, "green"), Step(1, "yellow")),
        ),
        explained(
            number(
                "References refused",
                "Sides of models that nothing watches, since their reference does not fit;"
                " the log and the status page list the differences.",
                "short",
                Query(
                    "count(max by (model, side)"
                    ' (triton_drift_state_info<m,state="refused">)) or vector(0)'
                ),
                steps=_QUIET,
            ),
            "TritonDriftReferenceRefused",
        ),
        explained(
            number(
                "Train again in",
                "Earliest median forecast; unknown where no trend foretells anything.",
                "s",
                Query('min(triton_retrain_eta_seconds<m,bound="median">)'),
                span=12,
            ),
            "TritonDriftRetrainSoon",
        ),
        series(
            "Evidence by feature",
            "Natural logarithm of the evidence that a feature changed; the highest ten.",
            "short",
            Query(
                "topk(10, max by (model, feature) (triton_feature_drift_evidence<m>))",
                "{{model}} {{feature}}",
            ),
            least=None,
        ),
        series(
            "Evidence of the model against its threshold",
            "An alarm is raised where the evidence meets the threshold.",
            "short",
            Query(
                "max by (model, side) (triton_model_drift_evidence<m>)",
                "{{model}} {{side}}",
            ),
            Query(
                "max by (model, side) (triton_model_drift_evidence_threshold<m>)",
                "threshold of {{model}} {{side}}",
            ),
            least=None,
        ),
    ]


def _scores() -> list[Any]:
    return [
        heat(
            "PSI by feature over time",
            "The brighter, the further the feature was from its reference then.",
            "short",
            Query(
                "max by (model, feature)"
                ' (triton_feature_drift_score<m,statistic="psi">)',
                "{{model}} {{feature}}",
            ),
            buckets=False,
        ),
        rows(
            "Features",
            "Distances of the latest windows and, beside PSI, what 99.9 % of windows of"
            " this size stay below while nothing changes.",
            "short",
            Query(
                'max by (model, feature) (triton_feature_drift_score<m,statistic="psi">)',
                "PSI",
            ),
            Query(
                "max by (model, feature)"
                ' (triton_feature_drift_null<m,statistic="psi",bound="upper">)',
                "PSI by chance",
            ),
            Query(
                "max by (model, feature)"
                ' (triton_feature_drift_score<m,statistic="jensen_shannon">)',
                "Jensen-Shannon",
            ),
            Query(
                "max by (model, feature)"
                ' (triton_feature_drift_score<m,statistic="wasserstein">)',
                "Wasserstein / sigma",
            ),
            Query("max by (model, feature) (triton_feature_drift_alarm<m>)", "alarm"),
        ),
        series(
            "PSI beyond chance",
            "PSI less its mean while nothing changes; the ten largest.",
            "short",
            Query(
                "topk(10, max by (model, feature) ("
                'triton_feature_drift_score<m,statistic="psi"> - ignoring (bound)'
                ' triton_feature_drift_null<m,statistic="psi",bound="mean">))',
                "{{model}} {{feature}}",
            ),
            least=None,
        ),
        series(
            "Distance in standard deviations",
            "Wasserstein-1: how far values moved on average; the ten largest.",
            "short",
            Query(
                "topk(10, max by (model, feature)"
                ' (triton_feature_drift_score<m,statistic="wasserstein">))',
                "{{model}} {{feature}}",
            ),
        ),
    ]


def _distributions() -> list[Any]:
    matchers = 'feature=~"$feature",reference=~"$reference"'
    rows_ = f"increase(triton_feature_observations_total<m,{matchers}>[1h])"
    return [
        bars(
            "$feature",
            "Share of the rows of the last hour, over all replicas, in each bin of the"
            " reference; of features that export_bins names. Replicas with another"
            " reference have other bins: choose one reference at a time.",
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
            "Values that the reference never had.",
        ),
    )
    return [
        *(
            series(
                title,
                f"Share of rows in the latest windows, the ten largest. {what}",
                "percentunit",
                Query(
                    f"topk(10, max by (model, feature) ({metric}<m>))",
                    "{{model}} {{feature}}",
                ),
                steps=good_below(0.01, 0.05),
            )
            for title, metric, what in shares
        ),
        explained(
            series(
                "Schema violations",
                "Requests a second whose tensors are not those of the reference, by kind.",
                "reqps",
                Query(
                    "sum by (model, kind) (rate(triton_schema_violations_total<m>"
                    "[$__rate_interval]))",
                    "{{model}} {{kind}}",
                ),
            ),
            "TritonDriftSchemaViolations",
        ),
    ]


def _watches() -> list[Any]:
    return [
        explained(
            series(
                "Rows seen by the taps",
                "After sampling; nothing here while requests come is a broken mirror.",
                "cps",
                Query(
                    "sum by (model, side) (rate(triton_drift_rows_total<m>"
                    "[$__rate_interval]))",
                    "{{model}} {{side}}",
                ),
            ),
            "TritonDriftNoTraffic",
        ),
        rows(
            "Watches",
            "References and windows of each side of each model.",
            "short",
            Query(
                "max by (model, side) (triton_drift_reference_rows<m>)",
                "reference rows",
            ),
            Query("max by (model, side) (triton_drift_window_rows<m>)", "window rows"),
            Query(
                "min by (model, side) (triton_drift_promise_kept<m>)", "promise kept"
            ),
            span=12,
        ),
        explained(
            series(
                "Age of the saved state",
                "Seconds since what is known of a model was last written: what a restart"
                " would forget. Nothing where no state is kept.",
                "s",
                Query(
                    "time() - max by (model, side, instance)"
                    " (tritonwatch_drift_state_saved_timestamp_seconds<m>)",
                    "{{instance}} {{model}} {{side}}",
                ),
                span=24,
            ),
            "TritonDriftStateNotSaved",
        ),
    ]
