"""A/B from production's histograms, window by window."""

from __future__ import annotations

import numpy as np
import pytest
import structlog
from accesses import access_to
from fake_triton import FakeModel, FakeTriton

from exporter import catalogue
from exporter.access.inventory import Inventory, InventoryBoard
from exporter.features.comparison.comparison_collector import Comparison
from exporter.features.comparison.comparison_settings import ComparisonSettings
from exporter.features.comparison.production_comparison import MOST_WINDOWS, Windows
from exporter.histograms.histogram import Histogram
from exporter.samples import HistogramSample, Sample
from exporter.triton.grpc import GrpcClient

SEED = 11


def recorded(values):
    histogram = Histogram()
    histogram.record_many(np.asarray(values))
    return histogram


def served(rng, windows, factor=1.0, size=60):
    """Windows of a load that both feel alike and that changes from one to the next."""
    found = Windows()
    for _ in range(windows):
        load = rng.lognormal(0, 1)
        found.add(
            recorded(0.01 * load * rng.lognormal(0, 0.3, size)),
            recorded(0.01 * load * factor * rng.lognormal(0, 0.3, size // 2)),
        )
    return found


def test_too_few_windows_say_nothing():
    found = served(np.random.default_rng(SEED), 20)
    assert found.mean_ratio(0.05) is None
    assert found.quantile_ratio(0.95, 0.05) is None


@pytest.mark.parametrize("q", [0.5, 0.95])
def test_a_slower_challenger_is_told_under_a_load_that_changes(q):
    found = served(np.random.default_rng(SEED), 200, factor=1.3)
    mean, quantile = found.mean_ratio(0.05), found.quantile_ratio(q, 0.05)
    assert 0.2 < mean.low <= 0.3 < mean.high < 0.45
    assert 0 < quantile.low < 0.3 < quantile.high < 0.8


def test_a_quantile_that_no_request_is_beyond_is_not_known():
    """Of sixty requests none is the slowest of a hundred."""
    rng = np.random.default_rng(SEED)
    found = Windows()
    for _ in range(60):
        found.add(recorded(rng.lognormal(0, 1, 1)), recorded(rng.lognormal(0, 1, 1)))
    interval = found.quantile_ratio(0.99, 0.05)
    assert interval.low == -1
    assert interval.high == np.inf


def test_memory_is_bounded_and_nothing_is_lost():
    found = Windows()
    one = recorded([0.01, 0.02])
    for _ in range(3 * MOST_WINDOWS):
        found.add(one, one)
    assert found.count < MOST_WINDOWS
    held = sum(w.champion.count for w in found._held)
    rest = 0 if found._open is None else found._open.champion.count
    assert held + rest == 2 * 3 * MOST_WINDOWS


def test_a_window_without_requests_to_one_of_them_waits_for_some():
    found = Windows()
    found.add(recorded([0.01]), Histogram())
    assert found.count == 0
    found.add(Histogram(), recorded([0.01]))
    assert found.count == 1


def rollout(rng, windows):
    """Windows of a challenger that is 6 ms slower, while other load comes and goes."""
    found, level = Windows(), 1.0
    for _ in range(windows):
        if rng.random() < 0.07:
            level = rng.uniform(1, 8)
        alike = 0.003 * level * rng.lognormal(0, 0.3, (2, 18))
        found.add(recorded(alike[0]), recorded(alike[1] + 0.006))
    return found


def test_a_much_slower_challenger_is_told_although_load_comes_in_phases():
    """Phases of fourteen windows leave a few independent stretches, and those agree."""
    rng = np.random.default_rng(SEED)
    looks = [rollout(rng, 60).quantile_ratio(0.5, 0.05) for _ in range(40)]
    assert sum(look.low > 0.05 for look in looks) >= 38
    assert all(look.low < look.estimate < look.high for look in looks)


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

        board = InventoryBoard()
        specs = {
            key: grpc.model_spec(*key, timeout_seconds=5)
            for key in (CHAMPION, CHALLENGER)
        }

        def load(at):
            board.publish(Inventory(models=specs, loaded_at={CHALLENGER: at}))

        def start(production):
            access = access_to(grpc, board=board, exposed=production.exposed)
            settings = ComparisonSettings(
                name="ab", champion="m:1", challenger="m:2", mode="ab"
            )
            return Comparison(settings, access)

        load(1.0)
        start.load = load  # type: ignore[attr-defined]
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
    # The settings' alpha is that of all metrics together.
    source = comparison.source
    every = comparison.settings.alpha / len(comparison.settings.wanted)
    assert effect == source.windows.mean_ratio(every)
    assert found["latency_p50"].interval == source.windows.quantile_ratio(0.5, every)
    assert effect != source.windows.mean_ratio(comparison.settings.alpha)


def test_a_load_under_the_same_version_begins_anew_and_logs_what_it_drops(watch):
    production = Production(1.5)
    comparison = watch(production)
    for _ in range(100):
        production.go_on()
        comparison.update()
    assert {f.verdict for f in comparison.findings if f.metric == "energy"} == {"worse"}
    production.factor = 1.0
    watch.load(2.0)
    with structlog.testing.capture_logs() as logs:
        comparison.update()
    assert "worse" not in {f.verdict for f in comparison.findings}
    [entry] = logs
    assert entry["event"] == "comparison_restarted"
    assert entry["dropped"]["energy"] == "worse"


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
