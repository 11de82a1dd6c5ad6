"""What the golden page shows is what the catalogue declares."""

from __future__ import annotations

import re
from pathlib import Path

from exporter.catalogue import CATALOGUE
from exporter.output.exposition import parse_text

GOLDEN = Path(__file__).parents[1] / "data" / "golden.prom"
SPECS = {spec.name: spec for spec in CATALOGUE}
# Prometheus text has no kind for an info metric.
KINDS = {"info": "gauge"}


def spec_of(series: str):
    for suffix in ("", "_bucket", "_count", "_sum"):
        spec = SPECS.get(series.removesuffix(suffix))
        if spec is not None and (not suffix or spec.kind == "histogram"):
            return spec
    return None


def test_every_series_is_a_metric_of_the_catalogue_with_its_labels() -> None:
    for name, labels, _ in parse_text(GOLDEN.read_bytes()):
        spec = spec_of(name)
        assert spec is not None, name
        bound = {"le"} if name.endswith("_bucket") else set()
        assert labels.keys() == {*spec.labels, *bound}, name


def test_kinds_and_helps_are_those_of_the_catalogue() -> None:
    page = GOLDEN.read_text("utf-8")
    for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE):
        assert kind == KINDS.get(SPECS[name].kind, SPECS[name].kind)
    for name, text in re.findall(r"^# HELP (\S+) (.*)$", page, re.MULTILINE):
        assert text == SPECS[name].help


def test_metrics_stand_in_the_order_of_the_catalogue() -> None:
    shown = re.findall(r"^# TYPE (\S+)", GOLDEN.read_text("utf-8"), re.MULTILINE)
    assert shown == [name for name in SPECS if name in shown]
