"""How well models use the GPU: share of its peak, and where they stand under its roof.

Roofline (Williams, Waterman, Patterson, CACM 52(4), 2009): a kernel of arithmetic
intensity I attains at most min(peak FLOPS, I x memory bandwidth).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from exporter import catalogue
from exporter.features.energy.gpu_data import peak_of
from exporter.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from exporter.access.inventory import ModelKey
    from exporter.features.energy.energy_accounts import Settled
    from exporter.features.energy.energy_settings import CostSettings, ModelWorkSettings
    from exporter.samples import AnySample


def samples(cost: CostSettings, windows: Iterable[Settled]) -> Iterator[AnySample]:
    """Utilisation and roofline of the models whose work is configured."""
    if not cost.models:
        return
    counts: Counter[ModelKey] = Counter()
    operations: dict[ModelKey, float] = defaultdict(float)
    transfers: dict[ModelKey, float] = defaultdict(float)
    for settled in windows:
        counts.update(settled.inferences)
        for key, name, seconds in _busy(settled):
            work = cost.models.get(key[0])
            if work is not None:
                operations[key] += seconds * (_flops(cost, work, name) or 0.0)
                transfers[key] += seconds * (_bandwidth(cost, name) or 0.0)
    for key, count in counts.items():
        work = cost.models.get(key[0])
        if work is not None and count > 0:
            yield from _of_model(key, work, count, operations[key], transfers[key])


def _of_model(
    key: ModelKey,
    work: ModelWorkSettings,
    count: int,
    possible_operations: float,
    possible_bytes: float,
) -> Iterator[AnySample]:
    """What was done in the busy time over what could have been done in it."""
    done = work.flops_per_inference * count
    if possible_operations > 0:
        ratio = done / possible_operations
        yield Sample(catalogue.FLOPS_UTILIZATION, ratio, key)
    if work.bytes_per_inference is None:
        return
    intensity = work.flops_per_inference / work.bytes_per_inference
    yield Sample(catalogue.INTENSITY, intensity, key)
    if possible_bytes <= 0:
        return
    moved = work.bytes_per_inference * count
    yield Sample(catalogue.BANDWIDTH_UTILIZATION, moved / possible_bytes, key)
    if possible_operations > 0:
        by_memory = intensity * possible_bytes
        bound = "compute" if possible_operations <= by_memory else "memory"
        roof = min(possible_operations, by_memory)
        yield Sample(catalogue.ROOFLINE, done / roof, (*key, bound))


def _busy(settled: Settled) -> Iterator[tuple[ModelKey, str, float]]:
    """Model, board's name and busy seconds; without boards, the machine's."""
    boards = [(d, w) for d, w in settled.parts if d.boundary == "gpu"]
    for device, window in boards:
        for key, seconds in window.busy.items():
            yield key, device.name, seconds
    if not boards:
        for key, seconds in settled.busy.items():
            yield key, "", seconds


def _flops(cost: CostSettings, work: ModelWorkSettings, name: str) -> float | None:
    configured = cost.gpu.peak_flops.get(work.precision)
    if configured is not None:
        return configured
    known = peak_of(name)
    return None if known is None else known.flops(work.precision)


def _bandwidth(cost: CostSettings, name: str) -> float | None:
    if cost.gpu.memory_bytes_per_second is not None:
        return cost.gpu.memory_bytes_per_second
    known = peak_of(name)
    return None if known is None else known.memory_bytes_per_second
