"""Metrics of backends under names of our own, and lines that models may not forge."""

from __future__ import annotations

import pytest

from exporter import catalogue
from exporter.features.statistics.server_page import (
    MAX_BACKEND_SERIES,
    REFUSALS,
    BackendMetrics,
    page_of,
)
from exporter.samples import BucketSample

KEY = ("llm", "1")
LABELS = 'model="llm",version="1"'


def page(*lines):
    return page_of("".join(f"{line}\n" for line in lines).encode())


def shown(read, *present):
    return {
        (s.spec.name, s.labels): s.value
        for s in BackendMetrics().samples(read, present or (KEY,))
        if s.spec is not catalogue.PAGE_REFUSED and not isinstance(s, BucketSample)
    }


def test_older_names_of_vllm_are_read():
    read = page(f"vllm:gpu_cache_usage_perc{{{LABELS}}} 0.25")
    assert read.backend == {KEY: {"kv_cache": 0.25}}


def test_vllm_is_read():
    read = page(
        f"vllm:num_requests_running{{{LABELS}}} 3",
        f"vllm:num_requests_waiting{{{LABELS}}} 4",
        f"vllm:kv_cache_usage_perc{{{LABELS}}} 0.25",
        f"vllm:num_preemptions_total{{{LABELS}}} 5",
        f"vllm:prefix_cache_queries_total{{{LABELS}}} 60",
        f"vllm:prefix_cache_hits_total{{{LABELS}}} 6",
        f"vllm:prompt_tokens_total{{{LABELS}}} 70",
        f"vllm:generation_tokens_total{{{LABELS}}} 80",
    )
    assert shown(read) == {
        ("triton_backend_requests_running", KEY): 3,
        ("triton_backend_requests_waiting", KEY): 4,
        ("triton_backend_kv_cache_usage_ratio", KEY): 0.25,
        ("triton_backend_preemptions_total", KEY): 5,
        ("triton_backend_prefix_cache_queries_total", KEY): 60,
        ("triton_backend_prefix_cache_hits_total", KEY): 6,
        ("triton_backend_tokens_total", (*KEY, "input")): 70,
        ("triton_backend_tokens_total", (*KEY, "output")): 80,
    }


def test_types_that_change_are_ignored():
    read = page(
        "# TYPE vllm:num_requests_running gauge",
        f"vllm:num_requests_running{{{LABELS}}} 3",
        "# TYPE vllm:num_requests_running histogram",
        f'vllm:num_requests_running{{{LABELS},engine="1"}} 4',
    )
    assert shown(read) == {("triton_backend_requests_running", KEY): 7}
    assert not read.refused


def test_tensorrt_llm_is_read():
    requests, blocks = "nv_trt_llm_request_metrics", "nv_trt_llm_kv_cache_block_metrics"
    lengths = 'response_metric_type="total_output_tokens"'
    read = page(
        f'{requests}{{{LABELS},request_type="active"}} 3',
        f'{requests}{{{LABELS},request_type="max"}} 64',
        f'{requests}{{{LABELS},request_type="waiting"}} 4',
        f'{blocks}{{{LABELS},kv_cache_block_type="fraction"}} 0.5',
        f'{blocks}{{{LABELS},kv_cache_block_type="used"}} 5000',
        f"nv_llm_output_token_len_sum{{{LABELS},{lengths}}} 80",
    )
    assert shown(read) == {
        ("triton_backend_requests_running", KEY): 3,
        ("triton_backend_requests_waiting", KEY): 4,
        ("triton_backend_kv_cache_usage_ratio", KEY): 0.5,
        ("triton_backend_tokens_total", (*KEY, "output")): 80,
    }
    assert not read.refused


def test_engines_are_added_up_and_the_fullest_cache_counts():
    read = page(
        f'vllm:kv_cache_usage_perc{{{LABELS},engine="0"}} 0.2',
        f'vllm:kv_cache_usage_perc{{{LABELS},engine="1"}} 0.3',
        f"vllm:gpu_cache_usage_perc{{{LABELS}}} 0.25",
        f'vllm:num_requests_running{{{LABELS},engine="0"}} 2',
        f'vllm:num_requests_running{{{LABELS},engine="1"}} 3',
    )
    assert read.backend[KEY] == {"kv_cache": 0.3, "running": 5}


def test_models_that_the_statistics_do_not_list_are_not_shown():
    read = page('vllm:num_requests_running{model="ghost",version="1"} 3')
    assert shown(read) == {}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (f"vllm:kv_cache_usage_perc{{{LABELS}}} 1.5", "value"),
        (f"vllm:num_requests_running{{{LABELS}}} -1", "value"),
        (f'nv_inference_count{{{LABELS},forged="1"}} 1000', "foreign_labels"),
        (f'nv_inference_count{{{LABELS},le="1"}} 1000', "foreign_labels"),
        (
            f'nv_inference_pending_request_count{{{LABELS},reason="x"}} 1000',
            "foreign_labels",
        ),
    ],
)
def test_what_is_implausible_or_forged_is_refused_and_counted(line, reason):
    read = page(f"nv_inference_count{{{LABELS}}} 3", line)
    assert read.counters == {(KEY, "inferences"): 3}
    assert read.refused == {reason: 1}
    assert not read.backend.get(KEY)
    assert not read.pending
    totals = BackendMetrics()
    for times in (1, 2):
        refused = {
            s.labels[0]: s.value
            for s in totals.samples(read, ())
            if s.spec is catalogue.PAGE_REFUSED
        }
        assert refused == dict.fromkeys(REFUSALS, 0) | {reason: times}


def test_tags_of_a_model_are_labels_of_tritons_own():
    read = page(f'nv_inference_count{{{LABELS},_team="search",gpu_uuid="GPU-1"}} 3')
    assert read.counters == {(KEY, "inferences"): 3}


def test_what_models_register_takes_no_room_from_tritons_own():
    flood = [
        f'vllm:prompt_tokens_total{{{LABELS},x="{place}"}} 1'
        for place in range(MAX_BACKEND_SERIES + 5)
    ]
    read = page(*flood, f"nv_inference_count{{{LABELS}}} 3")
    assert read.counters == {(KEY, "inferences"): 3}
    assert read.refused == {"too_many": 5}


def test_failures_have_their_reasons_and_unknown_ones_are_other():
    name = "nv_inference_request_failure"
    read = page(
        *(
            f'{name}{{{LABELS},reason="{reason}"}} {number}'
            for reason, number in (("REJECTED", 1), ("OTHER", 2), ("x", 4), ("y", 8))
        )
    )
    assert read.counters == {(KEY, "failure"): 15}
    assert shown(read) == {
        ("triton_request_failures_total", (*KEY, "REJECTED")): 1,
        ("triton_request_failures_total", (*KEY, "OTHER")): 14,
    }


NAME = "nv_inference_first_response_histogram_ms"
HISTOGRAM = [
    *(
        f'{NAME}_bucket{{{LABELS},le="{bound}"}} {count}'
        for bound, count in (("100", 1), ("500", 2), ("2000", 5), ("5000", 5))
    ),
    f'{NAME}_bucket{{{LABELS},le="+Inf"}} 6',
    f"{NAME}_sum{{{LABELS}}} 12000",
    f"{NAME}_count{{{LABELS}}} 6",
]


def histograms(read):
    found = BackendMetrics().samples(read, (KEY,))
    return [s for s in found if isinstance(s, BucketSample)]


def test_the_first_response_histogram_of_later_versions_is_shown_in_seconds():
    (found,) = histograms(page(*HISTOGRAM))
    assert (found.counts, found.count, found.sum) == ((1, 2, 5, 5), 6, 12)
    assert found.labels == KEY


@pytest.mark.parametrize("left_out", range(7))
def test_a_histogram_that_is_not_whole_is_not_shown(left_out):
    lines = [line for place, line in enumerate(HISTOGRAM) if place != left_out]
    assert len(histograms(page(*lines))) == ("+Inf" in HISTOGRAM[left_out])


def test_a_histogram_that_falls_is_not_shown():
    lines = [
        line.replace(" 1", " 4", 1) if '"100"' in line else line for line in HISTOGRAM
    ]
    assert not histograms(page(*lines))


def test_series_of_a_model_and_of_its_gpus_are_one_number():
    """Triton has gauges and histograms for the model and for each GPU; some stay 0."""
    name = "nv_inference_pending_request_count"
    gpus = [f'{name}{{gpu_uuid="GPU-{number}",{LABELS}}} 0' for number in (0, 1)]
    assert page(f"{name}{{{LABELS}}} 7", *gpus).pending == {KEY: 7}
    assert page(*gpus, f"{name}{{{LABELS}}} 7").pending == {KEY: 7}


def test_a_first_response_histogram_with_other_bounds_is_refused_and_counted():
    body = f"""{NAME}_count{{model="m",version="1"}} 37
{NAME}_sum{{model="m",version="1"}} 10771
{NAME}_bucket{{model="m",version="1",le="10"}} 8
{NAME}_bucket{{model="m",version="1",le="+Inf"}} 37
"""
    found = list(BackendMetrics().samples(page_of(body.encode()), {("m", "1")}))
    assert "bounds" in {s.labels[0] for s in found if s.value}
