"""A/B from what is exposed: two histograms that grow, and counts."""

from __future__ import annotations

import numpy as np
import pytest
from accesses import access_to
from fake_triton import FakeModel, FakeTriton

from exporter import catalogue
from exporter.access.inventory import Inventory, InventoryBoard
from exporter.features.comparison.comparison_collector import Comparison
from exporter.features.comparison.comparison_settings import ComparisonSettings
from exporter.histograms.histogram import Histogram
from exporter.samples import HistogramSample, Sample
from exporter.triton.grpc import GrpcClient

CHAMPION, CHALLENGER = ("m", "1"), ("m", "2")


class Production:
    """What a sidecar would expose of two versions that serve side by side."""

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.rng = np.random.default_rng(5)
        self.histograms = {CHAMPION: Histogram(), CHALLENGER: Histogram()}
        self.joules = dict.fromkeys(self.histograms, 0.0)
        self.requests = dict.fromkeys(self.histograms, 0)
        self.is_late = False
        """True while statistics are missing from what is exposed."""

    def go_on(self):
        load = self.rng.lognormal(0, 0.5)
        for key, factor in ((CHAMPION, 1.0), (CHALLENGER, self.factor)):
            seconds = 0.01 * load * factor * self.rng.lognormal(0, 0.2, 40)
            self.histograms[key].record_many(seconds)
            self.requests[key] += 40
            self.joules[key] += 40 * factor * self.rng.lognormal(0, 0.1)

    def exposed(self):
        for key, histogram in self.histograms.items():
            yield HistogramSample(catalogue.REQUEST_DURATION, histogram.copy(), key)
            if not self.is_late:
                yield Sample(catalogue.REQUESTS, self.requests[key], (*key, "success"))
                yield Sample(catalogue.REQUESTS, 0, (*key, "failure"))
                yield Sample(catalogue.INFERENCES, self.requests[key], key)
            labels = (*key, "gpu", "nvml", "busy_time")
            yield Sample(catalogue.MODEL_ENERGY, self.joules[key], labels)


@pytest.fixture
def watch():
    with FakeTriton([FakeModel("m", versions=("1", "2"))]) as fake:
        grpc = GrpcClient(fake.grpc)

        def start(production):
            board = InventoryBoard()
            specs = {
                key: grpc.model_spec(*key, timeout_seconds=5)
                for key in (CHAMPION, CHALLENGER)
            }
            board.publish(Inventory(models=specs))
            access = access_to(grpc, board=board, exposed=production.exposed)
            settings = ComparisonSettings(
                name="ab", champion="m:1", challenger="m:2", mode="ab"
            )
            return Comparison(settings, access)

        yield start
        grpc.close()


@pytest.mark.parametrize(
    ("factor", "verdict"), [(1.0, "undecided"), (1.5, "worse"), (0.6, "better")]
)
def test_what_production_serves_is_compared_in_time(watch, factor, verdict):
    production = Production(factor)
    comparison = watch(production)
    for _ in range(100):
        production.go_on()
        comparison.update()
    found = {f.metric: f for f in comparison.findings}
    assert comparison.problem == ""
    assert found["latency_mean"].verdict in {verdict, "equivalent"}
    if factor != 1.0:
        assert found["latency_mean"].verdict == verdict
        assert found["latency_p50"].verdict == verdict
        assert found["energy"].verdict == verdict
    effect = found["latency_mean"].interval
    assert effect.low <= factor - 1 <= effect.high
    assert found["success"].interval.estimate == 0
    assert comparison.document()["inputs"] == "production"


def test_a_model_that_is_not_there_is_said(watch):
    production = Production(1.0)
    comparison = watch(production)
    comparison.update()
    assert comparison.findings == ()
    assert comparison.document()["pairs"] == {"both": 0}


def test_looks_without_statistics_neither_add_history_nor_hide_what_was_seen(watch):
    production = Production(1.0)
    production.requests[CHAMPION] = 100_000
    comparison = watch(production)
    for look in range(100):
        production.go_on()
        production.is_late = look in {30, 50, 70}
        comparison.update()
    found = {f.metric: f.interval for f in comparison.findings}
    # 99 looks of 40 requests to each: nothing of what was there before.
    assert found["success"].pairs == 99 * 40
    energy = found["energy"]
    assert -0.2 < energy.low < 0 < energy.high < 0.2
