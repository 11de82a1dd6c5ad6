"""Metrics of comparisons, and of models that become ready again."""

from __future__ import annotations

from typing import Final

from exporter.catalogue.shared import MODEL as _MODEL
from exporter.samples import MetricSpec

COMPARISON_INFO: Final = MetricSpec(
    "triton_comparison_info",
    "A configured comparison, always 1; mode is shadow or ab.",
    ("comparison", "champion", "challenger", "mode"),
)
COMPARISON_EFFECT: Final = MetricSpec(
    "triton_comparison_effect",
    "Effect of the challenger and its interval by bound (low, estimate, high),"
    " valid at every evaluation. Latency, energy and memory relative to the"
    " champion's (0.05 is 5 % more), agreement minus 1, accuracy and success as"
    " differences of shares, output_distance as it is; 0 is no difference. A bound"
    " that is not known yet is absent.",
    ("comparison", "metric", "bound"),
)
COMPARISON_EFFECTIVE: Final = MetricSpec(
    "triton_comparison_effective_pairs",
    "Number of independent pairs that would give an interval of the same width:"
    " pairs that share a slow period of one model count less. Pairs divided by it"
    " are the variance inflation. 0 if no interval can be given yet; /api/v1/status"
    " has the reason. In mode ab, windows of production, for the metric success"
    " requests.",
    ("comparison", "metric"),
)
COMPARISON_MARGIN: Final = MetricSpec(
    "triton_comparison_margin",
    "Largest deterioration that still counts as equivalent, in the unit of the effect.",
    ("comparison", "metric"),
)
COMPARISON_VERDICT: Final = MetricSpec(
    "triton_comparison_verdict",
    "1 for the current verdict, 0 for the others: better and worse are beyond the"
    " margin, equivalent is within it, undecided is not known yet.",
    ("comparison", "metric", "verdict"),
)
COMPARISON_PAIRS: Final = MetricSpec(
    "triton_comparison_pairs_total",
    "Pairs of requests by outcome: both answered, champion_failed,"
    " challenger_failed, both_failed, and champion_missing, challenger_missing or"
    " both_missing if it was still busy with an earlier one. In mode ab, windows of"
    " production with the outcome both.",
    ("comparison", "outcome"),
)
COMPARISON_BUDGET: Final = MetricSpec(
    "triton_comparison_budget_used_ratio",
    "Load of a shadow comparison as a share of the champion's production, by "
    "resource: requests (inferences sent to each model) or busy (busy time of both "
    "models). Absent without production.",
    ("comparison", "resource"),
)
COMPARISON_WAIT: Final = MetricSpec(
    "triton_comparison_next_pair_seconds",
    "Estimated time until a shadow comparison sends its next pair, by the limit"
    " that delays it: requests or busy (the budget's share of production), idle"
    " (idle_pairs_per_second), rate (max_pairs_per_second), statistics (production"
    " is not known yet) or inputs (none is available). +Inf if no pair is expected;"
    " absent when the comparison has ended.",
    ("comparison", "limit"),
)
COMPARISON_ASKING: Final = MetricSpec(
    "triton_comparison_running",
    "1 while the comparison gathers evidence, 0 if it has all its pairs or cannot"
    " compare the two models; /api/v1/status has the reason.",
    ("comparison",),
)
COMPARISON_COMPLETE: Final = MetricSpec(
    "triton_comparison_complete",
    "1 if the comparison has its maximum number of pairs: the verdicts are final.",
    ("comparison",),
)
MODEL_LOAD: Final = MetricSpec(
    "triton_model_load_seconds",
    "Duration of the latest load of the model version, from loading to ready in the"
    " repository index, to the precision of the cold_start collector's interval.",
    _MODEL,
)
MODEL_FIRST_INFERENCE: Final = MetricSpec(
    "triton_model_first_inference_seconds",
    "Duration of the latest load and of its first inference, which is our own, without"
    " the time in which other models that had loaded were asked.",
    _MODEL,
)
COLD_INFERENCE: Final = MetricSpec(
    "triton_model_cold_inference_seconds",
    "Duration of the first inference after the latest load, as seen by our client.",
    _MODEL,
)
