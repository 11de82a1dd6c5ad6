"""Latencies for hypothesis, histograms of them, and the exact quantiles."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from exporter.histograms.buckets import upper_bound
from exporter.histograms.histogram import Histogram

PROMISED_ERROR = 0.0109
MICROSECOND_TO_HOUR = st.floats(1e-6, 3600.0)
# Floats over the whole range are tiny, most of them: one in four is enough of those.
ANY_LATENCY = st.one_of(
    MICROSECOND_TO_HOUR,
    st.floats(0.001, 0.1),
    st.integers(-960, 640).map(upper_bound),
    st.floats(0.0, 1.7e308),
)


def samples_of(elements, min_size=1):
    return st.lists(elements, min_size=min_size, max_size=60).map(np.array)


LATENCIES = samples_of(MICROSECOND_TO_HOUR)
# Many in few buckets: within one octave, and on a coarse grid with repeats.
CLUSTERED = samples_of(st.floats(0.01, 0.02) | st.sampled_from([0.01, 0.0125, 0.25]))
THOUSANDTHS = st.integers(0, 1000)


def histogram_of(*batches):
    histogram = Histogram()
    for batch in batches:
        histogram.record_many(batch)
    return histogram


def exact_quantile(values, thousandths):
    """In whole numbers: the least value with that share of all at or below it."""
    rank = max(-(-thousandths * len(values) // 1000), 1)
    return float(np.sort(values)[rank - 1])
