"""Use of the GPU by models: share of its peak, and their position under the roofline.

Roofline (Williams, Waterman, Patterson, CACM 52(4), 2009): a kernel of arithmetic
intensity I attains at most min(peak FLOPS, I x memory bandwidth).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from exporter import catalogue
from exporter.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from exporter.access.inventory import ModelKey
    from exporter.features.energy.energy_accounts import Settled
    from exporter.features.energy.energy_settings import CostSettings, ModelWorkSettings
    from exporter.samples import AnySample


_TERA: Final = 1e12


@dataclass(frozen=True, slots=True)
class Peak:
    """One product; `tera` is 10^12 operations a second by precision."""

    name: str
    """A part of NVML's name of the board."""
    tera: Mapping[str, float]
    memory_bytes_per_second: float
    sheet: str

    def flops(self, precision: str) -> float | None:
        """Operations a second, None where the product has no such precision."""
        found = self.tera.get("fp16" if precision == "bf16" else precision)
        return None if found is None else found * _TERA


_HOPPER: Final = {"fp64": 67, "fp32": 67, "tf32": 494.5, "fp16": 989.5, "fp8": 1979, "int8": 1979}  # fmt: skip
_NVL: Final = {
    "fp64": 60,
    "fp32": 60,
    "tf32": 417.5,
    "fp16": 835.5,
    "fp8": 1670.5,
    "int8": 1670.5,
}
_AMPERE: Final = {"fp64": 19.5, "fp32": 19.5, "tf32": 156, "fp16": 312, "int8": 624}
_A100: Final = "NVIDIA A100 Tensor Core GPU data sheet"
_H200: Final = "NVIDIA H200 Tensor Core GPU data sheet"
_H100: Final = "NVIDIA H100 Tensor Core GPU data sheet"

# The first whose name is part of the board's counts, so the longer name comes first.
PEAKS: Final = (
    Peak("H200 NVL", _NVL, 4.8e12, _H200),
    Peak("H200", _HOPPER, 4.8e12, _H200),
    Peak("H100 NVL", _NVL, 3.9e12, _H100),
    Peak("H100 PCIe", {"fp64": 51, "fp32": 51, "tf32": 378, "fp16": 756, "fp8": 1513, "int8": 1513}, 2.0e12, _H100),
    Peak("H100", _HOPPER, 3.35e12, _H100),
    Peak("A100-SXM4-80GB", _AMPERE, 2.039e12, _A100),
    Peak("A100 80GB PCIe", _AMPERE, 1.935e12, _A100),
    Peak("A100", _AMPERE, 1.555e12, _A100),
    Peak("A30", {"fp64": 10.3, "fp32": 10.3, "tf32": 82, "fp16": 165, "int8": 330}, 933e9, "NVIDIA A30 data sheet"),
    Peak("A10G", {"fp32": 31.5, "tf32": 35, "fp16": 70, "int8": 140}, 600e9, "NVIDIA A10G in Amazon EC2 G5"),
    Peak("A10", {"fp32": 31.2, "tf32": 62.5, "fp16": 125, "int8": 250}, 600e9, "NVIDIA A10 data sheet"),
    Peak("L40S", {"fp32": 91.6, "tf32": 183, "fp16": 362, "fp8": 733, "int8": 733}, 864e9, "NVIDIA L40S data sheet"),
    Peak("L40", {"fp32": 90.5, "tf32": 90.5, "fp16": 181, "fp8": 362, "int8": 362}, 864e9, "NVIDIA L40 data sheet"),
    Peak("L4", {"fp32": 30.3, "tf32": 60, "fp16": 121, "fp8": 242.5, "int8": 242.5}, 300e9, "NVIDIA L4 data sheet"),
    Peak("T4", {"fp32": 8.1, "fp16": 65, "int8": 130}, 320e9, "NVIDIA T4 product brief"),
    Peak("V100-PCIE", {"fp64": 7, "fp32": 14, "fp16": 112}, 900e9, "NVIDIA V100 data sheet"),
    Peak("V100", {"fp64": 7.8, "fp32": 15.7, "fp16": 125}, 900e9, "NVIDIA V100 data sheet"),
)  # fmt: skip


def peak_of(name: str) -> Peak | None:
    """The product that a board of this name is, None if it is none of the table."""
    words = name.replace("-", " ").split()
    for peak in PEAKS:
        wanted = peak.name.replace("-", " ").split()
        spans = range(len(words) - len(wanted) + 1)
        if any(words[at : at + len(wanted)] == wanted for at in spans):
            return peak
    return None


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
    """Return the work done in the busy time over the peak of that time."""
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
