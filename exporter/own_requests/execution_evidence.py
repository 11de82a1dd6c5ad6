"""Evidence from Triton's statistics while one of our own requests is in flight.

Two things cannot be read from an answer, or from its absence: whether the model ran at
all or a response cache answered for it, and whether it is busy with the sequences of
other clients or stuck.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from exporter.access.inventory import with_steps

if TYPE_CHECKING:
    from collections.abc import Mapping

    from exporter.access.inventory import Inventory, ModelKey
    from exporter.triton.grpc import GrpcClient
    from exporter.triton.protocol_types import ModelSpec, ModelStatistics

# Triton books an answer up to some milliseconds after it was sent.
_LAG_READS: Final = 5
_LAG_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class Watched:
    """The model versions whose statistics matter for requests to one model.

    `cached` have a response cache; `behind_cache` run the requests that it does not
    answer: the same models, or the steps of a cached ensemble. `sequences` are sequence
    models, with the seconds for which an idle sequence keeps its slot. All of them can be
    steps of the requested model.
    """

    cached: frozenset[ModelKey]
    behind_cache: frozenset[ModelKey]
    sequences: Mapping[ModelKey, float]

    @classmethod
    def of(cls, spec: ModelSpec, inventory: Inventory) -> Watched:
        """Return the models to watch for requests to `spec`."""
        reached = with_steps(spec, inventory)
        cached = {key for key, found in reached.items() if found.response_cache}
        behind = {
            key
            for cache in cached
            for key, found in with_steps(reached[cache], inventory).items()
            if not found.steps
        }
        sequences = {
            key: found.sequence_idle_seconds
            for key, found in reached.items()
            if found.sequence and not found.steps and not found.decoupled
        }
        return cls(frozenset(cached), frozenset(behind), sequences)

    @property
    def keys(self) -> frozenset[ModelKey]:
        """All of its model versions."""
        return self.cached | self.behind_cache | self.sequences.keys()


@dataclass(frozen=True, slots=True)
class Reading:
    """The statistics of the watched model versions at one instant."""

    models: Mapping[ModelKey, ModelStatistics]

    def hits(self, watched: Watched) -> int:
        """Answers that came from response caches."""
        return sum(
            self.models[key].cache_hit.count
            for key in watched.cached
            if key in self.models
        )

    def executions(self, key: ModelKey) -> int:
        """Return how often a model version was executed."""
        return self.models[key].execution_count if key in self.models else 0


def read(grpc: GrpcClient, watched: Watched, timeout_seconds: float) -> Reading:
    """Read the statistics of the watched model versions.

    Raises:
        TritonError: Triton did not answer.
    """
    keys = watched.keys
    name, version = next(iter(keys)) if len(keys) == 1 else ("", "")
    found = grpc.statistics(name, version, timeout_seconds=timeout_seconds)
    return Reading({e.key: e for e in found if e.key in keys})


def all_executed(
    grpc: GrpcClient, watched: Watched, before: Reading, timeout_seconds: float
) -> bool:
    """Return whether every model behind a cache was executed since `before`.

    Raises:
        TritonError: Triton did not answer.
    """
    for attempt in range(_LAG_READS):
        if attempt:
            time.sleep(_LAG_SECONDS)
        now = read(grpc, watched, timeout_seconds)
        ran = [
            now.executions(key) > before.executions(key) for key in watched.behind_cache
        ]
        if ran and all(ran):
            return True
        if attempt and now.hits(watched) > before.hits(watched):
            return False
    return False
