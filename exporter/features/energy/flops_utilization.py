"""FLOPS utilisation: configured operations over what the boards could have done."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
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
_HOPPER: Final = {"fp64": 67, "fp32": 67, "tf32": 494.5, "fp16": 989.5, "fp8": 1979, "int8": 1979}  # fmt: skip
_NVL: Final = {
    "fp64": 60,
    "fp32": 60,
    "tf32": 417.5,
    "fp16": 835.5,
    "fp8": 1670.5,
    "int8": 1670.5,
}
# The first whose name is part of the board's counts, so the longer name comes first.
PEAKS: Final[Mapping[str, Mapping[str, float]]] = {
    "H200 NVL": _NVL,  # NVIDIA H200 Tensor Core GPU data sheet
    "H200": _HOPPER,  # NVIDIA H200 Tensor Core GPU data sheet
    "H100 NVL": _NVL,  # NVIDIA H100 Tensor Core GPU data sheet
    "H100 PCIe": {"fp64": 51, "fp32": 51, "tf32": 378, "fp16": 756, "fp8": 1513, "int8": 1513},  # NVIDIA H100 Tensor Core GPU data sheet
    "H100": _HOPPER,  # NVIDIA H100 Tensor Core GPU data sheet
    "A100": {"fp64": 19.5, "fp32": 19.5, "tf32": 156, "fp16": 312, "int8": 624},  # NVIDIA A100 Tensor Core GPU data sheet
    "A30": {"fp64": 10.3, "fp32": 10.3, "tf32": 82, "fp16": 165, "int8": 330},  # NVIDIA A30 data sheet
    "A10G": {"fp32": 31.5, "tf32": 35, "fp16": 70, "int8": 140},  # NVIDIA A10G in Amazon EC2 G5
    "A10": {"fp32": 31.2, "tf32": 62.5, "fp16": 125, "int8": 250},  # NVIDIA A10 data sheet
    "L40S": {"fp32": 91.6, "tf32": 183, "fp16": 362, "fp8": 733, "int8": 733},  # NVIDIA L40S data sheet
    "L40": {"fp32": 90.5, "tf32": 90.5, "fp16": 181, "fp8": 362, "int8": 362},  # NVIDIA L40 data sheet
    "L4": {"fp32": 30.3, "tf32": 60, "fp16": 121, "fp8": 242.5, "int8": 242.5},  # NVIDIA L4 data sheet
    "T4": {"fp32": 8.1, "fp16": 65, "int8": 130},  # NVIDIA T4 product brief
    "V100-PCIE": {"fp64": 7, "fp32": 14, "fp16": 112},  # NVIDIA V100 data sheet
    "V100": {"fp64": 7.8, "fp32": 15.7, "fp16": 125},  # NVIDIA V100 data sheet
}  # fmt: skip
"""10^12 operations a second by precision, by a part of NVML's name of the board."""


def peak_of(name: str, precision: str) -> float | None:
    """Return operations a second of a board, or None if the table lacks them."""
    words = name.replace("-", " ").split()
    for product, tera in PEAKS.items():
        wanted = product.replace("-", " ").split()
        spans = range(len(words) - len(wanted) + 1)
        if any(words[at : at + len(wanted)] == wanted for at in spans):
            found = tera.get("fp16" if precision == "bf16" else precision)
            return None if found is None else found * _TERA
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
            if work is not None and seconds:
                # NaN: a part of what the boards could have done is no whole.
                possible[key] += seconds * (_flops(cost, work, name) or math.nan)
    for key, operations in possible.items():
        if counts[key] > 0 and operations > 0:
            done = cost.models[key[0]].flops_per_inference * counts[key]
            yield Sample(catalogue.FLOPS_UTILIZATION, done / operations, key)


def _busy(settled: Settled) -> Iterator[tuple[ModelKey, str, float]]:
    """Model, board's name and busy seconds; without boards, the machine's."""
    boards = [(d, w) for d, w in settled.parts if d.boundary == "gpu"]
    for device, window in boards:
        # The peak of a MIG instance is a part of the board's that is not known.
        name = "" if device.instances else device.name
        for key, seconds in window.busy.items():
            yield key, name, seconds
    if not boards:
        for key, seconds in settled.busy.items():
            yield key, "", seconds


def _flops(cost: CostSettings, work: ModelWorkSettings, name: str) -> float | None:
    configured = cost.gpu.peak_flops.get(work.precision)
    return peak_of(name, work.precision) if configured is None else configured
