"""The collector of comparisons, while the server is read for the first time."""

from __future__ import annotations

import numpy as np
import pytest
from accesses import access_to

from exporter.access.inventory import Inventory, InventoryBoard
from exporter.catalogue import INFERENCES, MODEL_ENERGY, MODEL_ENERGY_ERROR
from exporter.features.comparison.comparison_collector import (
    ComparisonCollector,
    Resources,
)
from exporter.features.comparison.comparison_settings import (
    ComparisonCollectorSettings,
    ComparisonSettings,
)
from exporter.samples import Sample
from exporter.triton.grpc import GrpcClient


class ReadMeanwhile(InventoryBoard):
    """A board whose first inventory comes right after somebody asked for it."""

    @property
    def was_read(self) -> bool:
        was_read = super().was_read
        self.publish(Inventory())
        return was_read


def test_models_that_are_read_during_a_run_are_no_failure_of_it():
    pair = {"name": "c", "champion": "a", "challenger": "b", "mode": "ab"}
    access = access_to(GrpcClient("127.0.0.1:1"), board=ReadMeanwhile())
    settings = ComparisonCollectorSettings(comparisons=[ComparisonSettings(**pair)])
    collector = ComparisonCollector(settings, access)
    assert collector.collect()


def of_pairs(**challengers: str) -> ComparisonCollectorSettings:
    pairs = [
        ComparisonSettings(name=name, champion="a", challenger=challenger, mode="ab")
        for name, challenger in challengers.items()
    ]
    return ComparisonCollectorSettings(comparisons=pairs)


def test_a_reload_keeps_the_comparisons_that_it_does_not_change():
    access = access_to(GrpcClient("127.0.0.1:1"))
    closed = []

    def collector_of(**challengers):
        collector = ComparisonCollector(of_pairs(**challengers), access)
        for comparison in collector.comparisons:
            comparison.close = lambda it=comparison: closed.append(it)
        return collector

    before = collector_of(same="b", other="b", gone="b")
    same, *rest = before.comparisons
    after = collector_of(new="b", other="c", same="b")
    fresh = after.comparisons[:2]
    after.inherit(before)
    before.close()
    assert after.comparisons == [*fresh, same]
    assert closed == rest
    after.inherit(None)
    assert after.comparisons == [*fresh, same]


KEYS = (("a", "1"), ("b", "1"))
PLACE = ("host", "model")


def energy_interval(errors: dict[str, float]):
    rng = np.random.default_rng(8)
    resources = Resources(0.05, lambda **_: (), KEYS)
    joules = np.zeros(2)
    for window in range(80):
        joules += np.array([10.0, 20.0]) * rng.uniform(9, 11, 2)
        resources.update(
            [
                *(
                    Sample(MODEL_ENERGY, energy, (*key, *PLACE, "busy_time"))
                    for key, energy in zip(KEYS, joules, strict=True)
                ),
                *(Sample(INFERENCES, 10.0 * window, key) for key in KEYS),
                *(
                    Sample(MODEL_ENERGY_ERROR, error, (model, "1", *PLACE))
                    for model, error in errors.items()
                ),
            ]
        )
    return resources.intervals(("energy",))["energy"]


def test_the_errors_of_both_models_watts_widen_the_interval():
    plain = energy_interval({})
    assert plain.estimate == pytest.approx(1.0, abs=0.05)
    assert plain.low < 1.0 < plain.high
    wide = energy_interval({"a": 0.3, "b": 0.4, "other": 9.0})
    assert wide.estimate == plain.estimate
    assert 1 + wide.low == pytest.approx((1 + plain.low) / 1.5)
    assert 1 + wide.high == pytest.approx((1 + plain.high) * 1.5)
