"""The catalogue keeps its own rules, and what is generated from it is fresh."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
from commands import python

from exporter import catalogue
from exporter.catalogue import CATALOGUE, PARTS
from exporter.commands import reference_pages
from exporter.config.configuration import load
from exporter.output.exposition import render
from exporter.samples import MetricSpec

ROOT = Path(__file__).parents[2]
# Named by other people's conventions.
FOREIGN = {
    "probe_success",
    "probe_duration_seconds",
    "probe_models_judged",
    "probe_models_unjudged",
}


def test_no_part_hides_a_name_of_another() -> None:
    names = [
        name
        for part in PARTS
        for name, value in vars(part).items()
        if isinstance(value, MetricSpec)
    ]
    assert len(names) == len(set(names)) == len(CATALOGUE)


@pytest.mark.parametrize("spec", CATALOGUE, ids=lambda spec: spec.name)
class TestEveryMetric:
    def test_is_named_as_prometheus_asks(self, spec) -> None:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", spec.name)
        assert spec.name in FOREIGN or spec.name.startswith(
            ("triton_", "tritonwatch_", "process_")
        )
        assert all(re.fullmatch(r"[a-z][a-z0-9_]*", label) for label in spec.labels)
        assert not {"le", "quantile_", "job", "instance"} & set(spec.labels)

    def test_says_what_it_means_in_a_sentence(self, spec) -> None:
        assert spec.help.endswith(".")
        assert "\n" not in spec.help
        assert spec.on_probe_only == ("on /probe only" in spec.help.lower())

    def test_has_buckets_in_ascending_order_or_none(self, spec) -> None:
        assert list(spec.buckets) == sorted(set(spec.buckets))


def test_quantiles_are_shares_and_bounds_are_multiples_of_the_one_before() -> None:
    quantiles = catalogue.QUANTILES
    assert list(quantiles) == sorted({q for q in quantiles if 0.5 <= q < 1})
    for bounds in (catalogue.BATCH_BOUNDS, catalogue.RESPONSE_BOUNDS):
        assert list(bounds) == [2.0**n for n in range(len(bounds))]
    for low, high in pairwise(catalogue.LATENCY_BOUNDS):
        assert high / low in {2, 2.5}


def test_no_name_is_used_twice_nor_is_the_beginning_of_anothers_series() -> None:
    names = [spec.name for spec in CATALOGUE]
    # OpenMetrics calls the family of a counter by its name without the suffix.
    families = [name.removesuffix("_total") for name in names]
    assert len(set(families)) == len(families)
    for spec in CATALOGUE:
        if spec.kind == "histogram":
            for suffix in ("_bucket", "_count", "_sum"):
                assert spec.name + suffix not in names


@pytest.mark.parametrize(
    ("file", "made"),
    [
        ("METRICS.md", reference_pages.metrics_page),
        ("CONFIG.md", reference_pages.config_page),
        ("exporter/config.schema.json", reference_pages.schema),
    ],
)
def test_a_generated_page_is_fresh(file, made) -> None:
    written = (ROOT / file).read_text("utf-8")
    assert written == made() + "\n", f"{file} is stale: run make generate"


def test_the_schema_accepts_the_shipped_files_as_the_program_does() -> None:
    for file in sorted((ROOT / "deploy").glob("*.yaml")):
        load(file, {})
    assert json.loads(reference_pages.schema())["title"] == "Config"


def test_an_empty_page_is_a_page() -> None:
    body, headers = render(())
    assert body == b""
    assert headers["content-type"].startswith("text/plain")


def test_serving_imports_neither_scipy_nor_what_is_not_configured() -> None:
    code = "import sys, exporter.commands.serving, exporter.app; print(*sys.modules)"
    found = set(python(code).split())
    assert found.isdisjoint({"scipy", "opentelemetry.sdk", "pynvml", "sklearn"})
    drift = {name for name in found if name.startswith("drift.")}
    assert {name for name in drift if not name.startswith("drift.numerics")} == set()
