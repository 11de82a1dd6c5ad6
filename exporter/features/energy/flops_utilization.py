"""FLOPS utilisation: configured operations over what the boards could have done."""

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
_H200: Final = "NVIDIA H200 Tensor Core GPU data sheet"
_H100: Final = "NVIDIA H100 Tensor Core GPU data sheet"

# The first whose name is part of the board's counts, so the longer name comes first.
PEAKS: Final = (
    Peak("H200 NVL", _NVL, _H200),
    Peak("H200", _HOPPER, _H200),
    Peak("H100 NVL", _NVL, _H100),
    Peak("H100 PCIe", {"fp64": 51, "fp32": 51, "tf32": 378, "fp16": 756, "fp8": 1513, "int8": 1513}, _H100),
    Peak("H100", _HOPPER, _H100),
    Peak("A100", {"fp64": 19.5, "fp32": 19.5, "tf32": 156, "fp16": 312, "int8": 624}, "NVIDIA A100 Tensor Core GPU data sheet"),
    Peak("A30", {"fp64": 10.3, "fp32": 10.3, "tf32": 82, "fp16": 165, "int8": 330}, "NVIDIA A30 data sheet"),
    Peak("A10G", {"fp32": 31.5, "tf32": 35, "fp16": 70, "int8": 140}, "NVIDIA A10G in Amazon EC2 G5"),
    Peak("A10", {"fp32": 31.2, "tf32": 62.5, "fp16": 125, "int8": 250}, "NVIDIA A10 data sheet"),
    Peak("L40S", {"fp32": 91.6, "tf32": 183, "fp16": 362, "fp8": 733, "int8": 733}, "NVIDIA L40S data sheet"),
    Peak("L40", {"fp32": 90.5, "tf32": 90.5, "fp16": 181, "fp8": 362, "int8": 362}, "NVIDIA L40 data sheet"),
    Peak("L4", {"fp32": 30.3, "tf32": 60, "fp16": 121, "fp8": 242.5, "int8": 242.5}, "NVIDIA L4 data sheet"),
    Peak("T4", {"fp32": 8.1, "fp16": 65, "int8": 130}, "NVIDIA T4 product brief"),
    Peak("V100-PCIE", {"fp64": 7, "fp32": 14, "fp16": 112}, "NVIDIA V100 data sheet"),
    Peak("V100", {"fp64": 7.8, "fp32": 15.7, "fp16": 125}, "NVIDIA V100 data sheet"),
)  # fmt: skip


def peak_of(name: str) -> Peak | None:
    """Return the product of a board with this name, or None if the table lacks it."""
    words = name.replace("-", " ").split()
    for peak in PEAKS:
        wanted = peak.name.replace("-", " ").split()
        spans = range(len(words) - len(wanted) + 1)
        if any(words[at : at + len(wanted)] == wanted for at in spans):
            return peak
    return None


def utilization(cost: CostSettings, windows: Iterable[Settled]) -> Iterator[AnySample]:
    """Yield the FLOPS utilisation of models whose work is configured."""
    if not cost.models:
        return
    counts: Counter[ModelKey] = Counter()
    possible: dict[ModelKey, float] = defaultdict(float)
    for settled in windows:
        counts.update(settled.inferences)
        for key, name, seconds in _busy(settled):
            work = cost.models.get(key[0])
            if work is not None:
                possible[key] += seconds * (_flops(cost, work, name) or 0.0)
    for key, operations in possible.items():
        if counts[key] > 0 and operations > 0:
            done = cost.models[key[0]].flops_per_inference * counts[key]
            yield Sample(catalogue.FLOPS_UTILIZATION, done / operations, key)


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
