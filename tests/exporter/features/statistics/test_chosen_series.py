"""Metrics of backends that the configuration names."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from exporter.features.slo.objectives import SignalObjective
from exporter.features.spc.spc_settings import SignalSettings
from exporter.features.statistics.chosen_series import MAX_SERIES, ChosenSeries
from exporter.features.statistics.server_page import BackendMetrics, page_of
from exporter.features.statistics.statistics_settings import StatisticsSettings

KEY = ("llm", "1")
LABELS = 'model="llm",version="1"'
BLOCKS = "nv_trt_llm_kv_cache_block_metrics"
CHOSEN = {
    "blocks_used": {"series": BLOCKS, "labels": {"kv_cache_block_type": "used"}},
    "queue": {"series": "my:queue"},
    "evictions": {"series": "my_evictions", "kind": "counter"},
}


def shown(*lines, present=(KEY,), chosen=None):
    """Return the exposed values, and how many lines were refused for which reason."""
    settings = StatisticsSettings.model_validate({"backend_metrics": chosen or CHOSEN})
    body = "".join(f"{line}\n" for line in lines).encode()
    read = page_of(body, ChosenSeries(settings.backend_metrics))
    samples = BackendMetrics().samples(read, present)
    found = {
        (s.spec.name, s.labels): s.value
        for s in samples
        if s.spec.name.startswith("triton_backend_")
    }
    return found, dict(read.refused)


def test_what_is_named_is_passed_through_and_nothing_else():
    assert shown(
        f'{BLOCKS}{{{LABELS},kv_cache_block_type="used"}} 5000',
        f'{BLOCKS}{{{LABELS},kv_cache_block_type="free"}} 100',
        f'my:queue{{{LABELS},lane="a"}} -2',
        f'my:queue{{{LABELS},lane="b"}} 5',
        f"my_evictions{{{LABELS}}} 8",
        f"my_others{{{LABELS}}} 9",
        'my:queue{model="ghost",version="1"} 3',
        "my:queue 4",
    ) == (
        {
            ("triton_backend_value", (*KEY, "blocks_used")): 5000,
            ("triton_backend_value", (*KEY, "queue")): 3,
            ("triton_backend_count_total", (*KEY, "evictions")): 8,
        },
        {},
    )


def test_a_series_with_a_name_of_ours_may_be_named_too():
    found, _ = shown(
        f"vllm:num_requests_running{{{LABELS}}} 3",
        chosen={"running": {"series": "vllm:num_requests_running"}},
    )
    assert found == {
        ("triton_backend_requests_running", KEY): 3,
        ("triton_backend_value", (*KEY, "running")): 3,
    }


def test_hostile_lines_are_refused_and_bounded():
    flood = [f'my:queue{{{LABELS},x="{place}"}} 1' for place in range(MAX_SERIES + 5)]
    found, refused = shown(
        f"my_evictions{{{LABELS}}} -1", f"my_evictions{{{LABELS}}} NaN", *flood
    )
    assert found == {("triton_backend_value", (*KEY, "queue")): MAX_SERIES - 2}
    assert refused == {"value": 2, "too_many": 7}


@pytest.mark.parametrize(
    "chosen",
    [
        {"Queue{": {"series": "my:queue"}},
        {"queue": {"series": "my queue"}},
        {"queue": {}},
        {f"queue_{number}": {"series": "q"} for number in range(51)},
    ],
)
def test_names_that_are_none_or_too_many_are_refused(chosen):
    with pytest.raises(ValidationError):
        StatisticsSettings.model_validate({"backend_metrics": chosen})


def test_objectives_and_control_charts_can_use_them():
    what = {"name": "queue", "metric": "triton_backend_value"}
    what["labels"] = {"model": "llm", "name": "queue"}
    SignalObjective.model_validate(
        {"kind": "signal", "at_most": 10, "objective_ratio": 0.99, **what}
    )
    SignalSettings.model_validate(what)
