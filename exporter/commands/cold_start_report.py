"""Summary of the repetitions: medians with intervals."""

from __future__ import annotations

import json
import math
import platform
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from exporter.histograms.quantiles import interval_ranks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from exporter.commands.cold_start_measure import Repetition

_TIMES: Final = ("load", "first_inference", "cold_inference", "warm_inference")
_MEMORY: Final = ("server", "gpu", "host", "model")
_MILLION: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Estimate:
    """A quantile with its 95 % order-statistic interval; ends are None if too few."""

    value: float
    low: float | None
    high: float | None
    n: int


def quantile(values: Sequence[float], q: float) -> Estimate | None:
    """The q-quantile; None of nothing."""
    if not values:
        return None
    ordered = np.sort(np.asarray(values, np.float64))
    ranks = interval_ranks(len(ordered), q)
    low, high = (None, None) if ranks is None else (_at(ordered, r) for r in ranks)
    value = ordered[max(0, math.ceil(q * len(ordered)) - 1)]
    return Estimate(float(value), low, high, len(ordered))


def _at(ordered: np.ndarray[Any, np.dtype[np.float64]], rank: float) -> float:
    return float(np.interp(rank, np.arange(1, len(ordered) + 1), ordered))


@dataclass(frozen=True, slots=True)
class Report:
    """All repetitions of one model."""

    model: str
    server: str
    repetitions: Sequence[Repetition]

    def to_json(self) -> str:
        """The report for programs: seconds and bytes."""
        return json.dumps(
            {
                "model": self.model,
                "repeat": len(self.repetitions),
                "seconds": {name: _shown(self._time(name)) for name in _TIMES},
                "memory_bytes": {name: self._memory(name) for name in _MEMORY},
                "each": [
                    {name: getattr(r, name) for name in _TIMES}
                    for r in self.repetitions
                ],
                "at": datetime.now(UTC).isoformat(timespec="seconds"),
                "versions": {
                    "tritonwatch": version("tritonwatch"),
                    "triton": self.server,
                    "python": platform.python_version(),
                },
                "machine": platform.machine(),
            },
            indent=2,
        )

    def to_text(self) -> str:
        """The report for people."""
        lines = [f"{self.model}: {len(self.repetitions)} cold starts"]
        for name in _TIMES:
            found = self._time(name)
            if found is not None:
                lines.append(f"{name.replace('_', ' '):<18} {_seconds(found)}")
        for name in _MEMORY:
            change = self._memory(name)
            if change is not None:
                lines.append(
                    f"memory, {name:<10} {change['unloaded'] / _MILLION:.1f} MiB before, "
                    f"{change['loaded'] / _MILLION:.1f} MiB after the load"
                )
        return "\n".join(lines) + "\n"

    def _time(self, name: str) -> Estimate | None:
        return quantile([getattr(r, name) for r in self.repetitions], 0.5)

    def _memory(self, name: str) -> dict[str, float] | None:
        """Return medians over the repetitions, None where there is no source."""
        pairs = [
            (getattr(r.unloaded, name) or 0, getattr(r.loaded, name))
            for r in self.repetitions
        ]
        known = [(a, b) for a, b in pairs if b is not None]
        if not known:
            return None
        unloaded, loaded = (float(np.median(side)) for side in zip(*known, strict=True))
        return {"unloaded": unloaded, "loaded": loaded}


def _shown(estimate: Estimate | None) -> dict[str, Any] | None:
    return None if estimate is None else asdict(estimate)


def _seconds(found: Estimate) -> str:
    if found.low is None or found.high is None:
        return f"{found.value * 1e3:9.1f} ms (too few for an interval)"
    return (
        f"{found.value * 1e3:9.1f} ms ({found.low * 1e3:.1f} to {found.high * 1e3:.1f})"
    )
