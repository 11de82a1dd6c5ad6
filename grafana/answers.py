"""Silent failures and comparisons: whether the answers are still right."""

from __future__ import annotations

from typing import Any

from grafana.frame import framed
from grafana.panels import (
    Query,
    Step,
    bounds,
    columns,
    good_above,
    good_below,
    latest,
    number,
    only_above_zero,
    rate,
    series,
)
from grafana.tables import rows


def build() -> Any:
    """The dashboard."""
    return framed(
        "answers",
        "Silent failures and comparisons",
        "A model can be fast and ready and still return wrong answers. Golden probes "
        "with known answers, control charts, accuracy estimated without labels, and "
        "comparisons of champion and challenger.",
        ("Golden data", _golden()),
        ("Without labels", _unlabelled()),
        ("Process control", _control()),
        ("Comparisons", _comparisons()),
        ("Cold starts", _cold()),
    )


def _golden() -> list[Any]:
    return [
        number(
            "Failing golden checks",
            "Checks whose answers differ from those recorded, or of which fewer are correct than"
            " chance explains.",
            "short",
            Query("sum(triton_golden_failing<v>)"),
            span=6,
            steps=good_below(1, 1),
            no_value="no golden data",
            alerts=["TritonSilentFailure", "TritonGoldenLoss"],
        ),
        number(
            "Lowest golden score",
            "The lowest of all golden sets and metrics; compare it with its baseline below.",
            "percentunit",
            Query("min(triton_golden_score_ratio<v>)"),
            span=6,
            no_value="no golden data",
        ),
        number(
            "Control charts in alarm",
            "Control charts whose signal left its limits.",
            "short",
            Query("sum(triton_spc_alarm<s>)"),
            span=6,
            steps=good_below(1, 1),
            no_value="no charts",
            alerts=["TritonProcessOutOfControl"],
        ),
        number(
            "Challenger metrics that are worse",
            "Metrics in which a challenger is worse than its champion beyond the margin.",
            "short",
            Query('sum(triton_comparison_verdict<s,verdict="worse">)'),
            span=6,
            steps=good_below(1, 1),
            no_value="no comparisons",
            alerts=["TritonComparisonWorse"],
        ),
        series(
            "Golden score",
            "Score of the latest answers to the whole set. Dashed: the baseline that a loss is"
            " measured from, and the 95 % interval of the accuracy.",
            "percentunit",
            latest("min", "triton_golden_score_ratio<v>", "model, dataset, metric"),
            latest(
                "min",
                "triton_golden_baseline_ratio<v>",
                "model, dataset, metric",
                legend="{{model}} {{dataset}} {{metric}} baseline",
            ),
            *(
                latest(
                    aggregate,
                    f'triton_golden_score_ci_ratio<v,metric="accuracy",bound="{bound}">',
                    "model, dataset",
                    legend=f"{{{{model}}}} {{{{dataset}}}} accuracy {bound}",
                )
                for aggregate, bound in (("min", "lower"), ("max", "upper"))
            ),
            band=("/ (lower|baseline)$/", "/ upper$/"),
            most=1,
        ),
        rows(
            "Golden sets",
            "Whether each file could be read and fits its model. If not, the log has "
            "the file, row and field.",
            "none",
            latest(
                "min",
                "triton_golden_usable<v>",
                "instance, model, version, dataset",
                legend="usable",
            ),
            span=12,
            yes_no=("usable",),
            steps=good_above(0.5, 1),
            alerts=["TritonGoldenUnusable"],
        ),
        series(
            "Golden answers by outcome",
            "Samples a second; outcomes that do not occur are left out.",
            "cps",
            only_above_zero(rate("triton_golden_samples_total<v>", "model, outcome")),
        ),
    ]


def _unlabelled() -> list[Any]:
    return [
        series(
            "Estimated accuracy with its 95 % interval",
            "From the model's own calibrated confidence. It does not detect concept "
            "drift (a changed relation of inputs to labels); a golden set does.",
            "percentunit",
            Query("triton_estimated_accuracy_ratio<v>", "{{instance}} {{model}}"),
            *bounds(
                "triton_estimated_accuracy_ci_ratio<v>",
                "{{instance}} {{model}}",
                "lower",
                "upper",
            ),
            band=("/ lower$/", "/ upper$/"),
            most=1,
        ),
        rows(
            "Conditions of the estimate",
            "no: do not rely on the estimate. Even if all conditions hold, concept "
            "drift is not detected. no_drift is absent if inputs are not watched for "
            "drift.",
            "none",
            latest(
                "min",
                "triton_estimated_accuracy_valid<v>",
                "instance, model, version, condition",
                legend="holds",
            ),
            span=12,
            yes_no=("holds",),
            steps=good_above(0.5, 1),
        ),
        series(
            "Predicted classes",
            "Share of the latest production answers that predict each class.",
            "percentunit",
            latest(
                "avg",
                'triton_output_class_ratio<v,source="production">',
                "model, class",
            ),
            most=1,
        ),
    ]


def _control() -> list[Any]:
    return [
        series(
            "Control chart statistics",
            "Statistic of each chart in standard deviations of its signal.",
            "short",
            Query("triton_spc_statistic<s>", "{{instance}} {{signal}} {{chart}}"),
            least=None,
        ),
        rows(
            "Watched signals",
            "Limits follow from the configured in-control run length. If consecutive "
            "samples are correlated, the charts use residuals.",
            "none",
            *columns(
                "max",
                "instance, signal",
                {
                    "alarm": "triton_spc_alarm<s>",
                    "learning": "triton_spc_learning<s>",
                    "autocorrelation": "triton_spc_autocorrelation_ratio<s>",
                },
            ),
            span=12,
            yes_no=("alarm", "learning"),
            steps=good_below(1, 1),
            colored=("alarm",),
        ),
    ]


def _comparisons() -> list[Any]:
    return [
        series(
            "Effect with its interval",
            "Effect of the challenger, in the unit of the metric. The interval is "
            "valid at every evaluation.",
            "none",
            Query(
                'triton_comparison_effect<s,bound="estimate">',
                "{{comparison}} {{metric}}",
            ),
            *bounds(
                "triton_comparison_effect<s>",
                "{{comparison}} {{metric}}",
                "low",
                "high",
            ),
            band=("/ low$/", "/ high$/"),
            least=None,
        ),
        series(
            "Compared pairs",
            "Pairs of requests per second, by outcome. Only pairs that both models "
            "answered count as evidence.",
            "cps",
            rate("triton_comparison_pairs_total<s>", "comparison, outcome"),
            stacked=True,
            alerts=["TritonComparisonStuck"],
        ),
        series(
            "Effective pairs",
            "Number of independent pairs that would give the same interval. 0 if the "
            "correlation lasts too long to be measured, or if stalls dominate.",
            "none",
            latest("max", "triton_comparison_effective_pairs<s>", "comparison, metric"),
        ),
        series(
            "Time until the next pair",
            "By the limit that delays the pair: a share of production (requests, "
            "busy), the configured rate (idle, rate), production's statistics, or an "
            "input.",
            "s",
            latest(
                "max", "triton_comparison_next_pair_seconds<s>", "comparison, limit"
            ),
        ),
        rows(
            "Comparison verdicts",
            "The verdict on each metric now: undecided until the evidence suffices.",
            "none",
            Query(
                "max by (comparison, metric, verdict) (triton_comparison_verdict<s> == 1)",
                "in force",
            ),
            span=12,
            hidden=("in force",),
        ),
    ]


def _cold() -> list[Any]:
    return [
        number(
            "Loads in the last hour",
            "Model versions that became ready. Investigate reloads that were not "
            "planned.",
            "short",
            Query("sum(increase(triton_model_loads_total<v>[1h]))"),
            span=24,
            steps=(Step(None, "blue"),),
        ),
        series(
            "Duration of the latest load",
            "Time from loading to ready, and from there to the first answered "
            "inference.",
            "s",
            Query("triton_model_load_seconds<v>", "{{instance}} {{model}} load"),
            Query(
                "triton_model_first_inference_seconds<v>",
                "{{instance}} {{model}} first inference",
            ),
            alerts=["TritonColdStartSlower"],
        ),
    ]
