"""The collector of comparisons, while the server is read for the first time."""

from __future__ import annotations

from accesses import access_to

from exporter.access.inventory import Inventory, InventoryBoard
from exporter.features.comparison.comparison_collector import ComparisonCollector
from exporter.features.comparison.comparison_settings import (
    ComparisonCollectorSettings,
    ComparisonSettings,
)
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
