"""Counts how often each model version was loaded, from several kinds of evidence."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from exporter.access.inventory import ModelKey

Evidence = Literal["ready", "statistics", "signature"]
"""It became ready, its statistics started over, or its signature changed."""
SAME_LOAD_SECONDS: Final = 15.0
"""Evidence of another kind within this time is of the same load: statistics and server
are read every 5 s by default."""


@dataclass(slots=True)
class _Load:
    at: float
    evidence: set[Evidence]


class LoadCounter:
    """Loads by model version; each load may show in up to three ways, or in one."""

    def __init__(self) -> None:
        self.counts: Counter[ModelKey] = Counter()
        self._latest: dict[ModelKey, _Load] = {}

    def follow(self, key: ModelKey) -> None:
        """Begin at 0: a counter that begins at 1 has no increase PromQL could see."""
        self.counts.setdefault(key, 0)

    def add(self, key: ModelKey, evidence: Evidence, now: float) -> None:
        """Count a load, unless this is more evidence of the one counted last."""
        latest = self._latest.get(key)
        if (
            latest is not None
            and now - latest.at <= SAME_LOAD_SECONDS
            and evidence not in latest.evidence
        ):
            latest.evidence.add(evidence)
            return
        self.counts[key] += 1
        self._latest[key] = _Load(now, {evidence})

    def keep(self, keys: Iterable[ModelKey]) -> None:
        """Forget every version that is not among `keys`."""
        for key in self.counts.keys() - set(keys):
            del self.counts[key]
            self._latest.pop(key, None)
