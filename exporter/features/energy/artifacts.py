"""Size of the models' files, and what keeping them costs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from exporter import catalogue
from exporter.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from exporter.access.inventory import ModelKey
    from exporter.features.energy.energy_settings import StorageSettings
    from exporter.samples import AnySample

_LOOK_SECONDS: Final = 600.0
_MOST_FILES: Final = 100_000
_GIGABYTE: Final = 1e9
_MONTH_SECONDS: Final = 30 * 86400.0


class Artifacts:
    """Looks at the repository now and then."""

    def __init__(self, storage: StorageSettings, clock: Callable[[], float]) -> None:
        self._storage = storage
        self._clock = clock
        self._sizes: dict[ModelKey, int] = {}
        self._cost: dict[ModelKey, float] = {}
        self._looked_at: float | None = None
        self._paid_until = clock()

    def price_per_second(self, key: ModelKey) -> float:
        """Price of keeping one model version's files for a second; 0 if it has none."""
        gigabytes = self._sizes.get(key, 0) / _GIGABYTE
        return gigabytes * self._storage.price_per_gigabyte_month / _MONTH_SECONDS

    def samples(self, currency: str) -> Iterator[AnySample]:
        """Sizes, and the cost so far."""
        now = self._clock()
        if self._looked_at is None or now - self._looked_at >= _LOOK_SECONDS:
            self._sizes = sizes(self._storage.repository)
            self._looked_at = now
        for key in self._sizes:
            price = self.price_per_second(key) * (now - self._paid_until)
            self._cost[key] = self._cost.get(key, 0.0) + price
        self._paid_until = now
        for key, size in self._sizes.items():
            yield Sample(catalogue.ARTIFACT_BYTES, size, key)
        for key, price in self._cost.items():
            yield Sample(catalogue.MODEL_COST, price, (*key, currency, "storage"))


def sizes(repository: Path, most_files: int = _MOST_FILES) -> dict[ModelKey, int]:
    """Bytes by model version: its own folder, and what its versions share in parts.

    Links are not followed. Beyond `most_files` nothing is counted any more, so that a
    folder that is none ends.
    """
    found: dict[ModelKey, int] = {}
    budget = [most_files]
    try:
        models = sorted(p for p in repository.iterdir() if p.is_dir())
    except OSError:
        return {}
    for model in models:
        versions = [p for p in model.iterdir() if p.is_dir() and p.name.isdecimal()]
        if versions:
            own = {v.name: _bytes(v, budget) for v in versions}
            shared = _bytes(model, budget) - sum(own.values())
            for version, size in own.items():
                found[model.name, version] = size + max(0, shared) // len(own)
    return found


def _bytes(folder: Path, budget: list[int]) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            budget[0] -= 1
            if budget[0] < 0:
                return total
            try:
                total += (Path(place) / name).lstat().st_size
            except OSError:
                # Removed meanwhile.
                continue
    return total
