"""The demo's line tells energy with its source, and what it does not know as "?"."""

from __future__ import annotations

from exporter.demo.demo_line import Line

LABELS = 'model="digits_fp32",version="1",basis="full"'
PAGE = f"""\
triton_inference_energy_joules{{{LABELS},boundary="host",source="model"}} 1.254
triton_model_inferences_per_second_per_watt{{{LABELS},boundary="host",source="model"}} 0.797
triton_model_cost_per_thousand_inferences{{{LABELS},currency="EUR"}} 0.00153
"""


def test_energy_efficiency_and_cost_are_shown_with_where_they_come_from():
    line = Line().of(PAGE.encode(), 0.0)
    assert "1.25 J/inference 0.80 QPS/W (host, model) 0.0015 EUR/1000" in line


def test_without_a_source_energy_is_unknown():
    assert "energy ?" in Line().of(b"", 0.0)
