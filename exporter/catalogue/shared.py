"""Bounds, quantiles and label sets that several parts of the catalogue share."""

from __future__ import annotations

from typing import Final

LATENCY_BOUNDS: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip
BATCH_BOUNDS: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
RESPONSE_BOUNDS: Final = tuple(2.0**power for power in range(15))
"""Powers of two are bounds of the histogram's own buckets: their counts are exact."""
QUANTILES: Final = (0.5, 0.9, 0.95, 0.99, 0.999)

MODEL: Final = ("model", "version")
PROBE: Final = ("model", "version", "protocol", "probe")
