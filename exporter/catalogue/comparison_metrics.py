"""Metrics of comparisons, and of models that become ready again."""

from __future__ import annotations

from typing import Final

from exporter.catalogue.shared import MODEL as _MODEL
from exporter.samples import MetricSpec

COMPARISON_INFO: Final = MetricSpec(
    "triton_comparison_info",
    "A comparison that is configured, always 1; mode is shadow or ab.",
    ("comparison", "champion", "challenger", "mode"),
)
COMPARISON_EFFECT: Final = MetricSpec(
    "triton_comparison_effect",
    "The challenger's effect and its interval by bound (low, estimate, high), which"
    " holds at all looks together. Latency, energy and memory as a share of the"
    " champion's (0.05 is 5 % more), agreement less 1, accuracy and success as"
    " differences of shares, output_distance as it is; 0 is no difference. An end that"
    " is not known yet is absent.",
    ("comparison", "metric", "bound"),
)
COMPARISON_EFFECTIVE: Final = MetricSpec(
    "triton_comparison_effective_pairs",
    "How many independent pairs the interval of triton_comparison_effect is worth: pairs"
    " that share a slow spell of one model count less. Pairs divided by it are the"
    " variance inflation. 0 where no interval can be claimed yet; /api/v1/status has the"
    " reason. In mode ab windows of production, of success requests.",
    ("comparison", "metric"),
)
COMPARISON_MARGIN: Final = MetricSpec(
    "triton_comparison_margin",
    "How much worse is no worse, in the unit of the effect.",
    ("comparison", "metric"),
)
COMPARISON_VERDICT: Final = MetricSpec(
    "triton_comparison_verdict",
    "1 for the verdict in force, 0 for the others: better and worse are beyond the"
    " margin, equivalent is within it, undecided is not known yet.",
    ("comparison", "metric", "verdict"),
)
COMPARISON_PAIRS: Final = MetricSpec(
    "triton_comparison_pairs_total",
    "Requests that both were asked, by outcome: both answered, champion_failed,"
    " challenger_failed, both_failed, and challenger_missing where it was still busy"
    " with an earlier one. In mode ab windows of production, outcome both.",
    ("comparison", "outcome"),
)
COMPARISON_BUDGET: Final = MetricSpec(
    "triton_comparison_budget_used_ratio",
    "What a shadow comparison asked of each model as a share of the champion's"
    " production, by resource (requests, busy). Absent without production.",
    ("comparison", "resource"),
)
COMPARISON_WAIT: Final = MetricSpec(
    "triton_comparison_next_pair_seconds",
    "Estimated time until a shadow comparison asks its next pair, by the limit that it"
    " waits for: requests or busy (the budget's share of production), idle"
    " (idle_pairs_per_second), rate (max_pairs_per_second), statistics (production is"
    " not known yet) or inputs (none is available). +Inf where none is to be expected;"
    " absent when nothing more is asked.",
    ("comparison", "limit"),
)
COMPARISON_ASKING: Final = MetricSpec(
    "triton_comparison_running",
    "1 while the comparison gathers evidence, 0 when it has all its pairs or cannot"
    " compare the two; /api/v1/status says why.",
    ("comparison",),
)
COMPARISON_COMPLETE: Final = MetricSpec(
    "triton_comparison_complete",
    "1 when the comparison has all the pairs it may have: the verdicts are final.",
    ("comparison",),
)
MODEL_LOAD: Final = MetricSpec(
    "triton_model_load_seconds",
    "How long the latest load of the model version took, from loading to ready as seen"
    " in the repository index, to the cold_start collector's interval.",
    _MODEL,
)
MODEL_FIRST_INFERENCE: Final = MetricSpec(
    "triton_model_first_inference_seconds",
    "From the begin of the latest load until the first inference after it was answered:"
    " one of ours, sent as soon as the model was seen to be ready.",
    _MODEL,
)
COLD_INFERENCE: Final = MetricSpec(
    "triton_model_cold_inference_seconds",
    "Duration of the first inference after the latest load, as our client saw it.",
    _MODEL,
)
