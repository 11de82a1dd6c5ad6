"""PromQL over latency histograms, in whichever form Prometheus keeps them.

Prometheus keeps the classic series (`_bucket`, `_sum`, `_count`), or one series of native
histograms under the metric's own name, or both, depending on its version and configuration.
Every expression here takes the native histogram, which is finer, and the classic series
where there is none.
"""

from __future__ import annotations


def quantile(q: float, metric: str, window: str, *by: str, where: str = "") -> str:
    """Quantile `q` of the observations of `window`, by the labels `by`.

    `where` is the selector that follows the metric's name.
    """
    native = f"{_sum(by)} (rate({metric}{where}[{window}]))"
    classic = f"{_sum((*by, 'le'))} (rate({metric}_bucket{where}[{window}]))"
    return f"histogram_quantile({q}, {native})\nor\nhistogram_quantile({q}, {classic})"


def mean(metric: str, window: str, *by: str, where: str = "") -> str:
    """Mean of the observations of `window`, by the labels `by`."""
    native = f"{_sum(by)} (rate({metric}{where}[{window}]))"
    total, count = (
        f"{_sum(by)} (rate({metric}_{part}{where}[{window}]))"
        for part in ("sum", "count")
    )
    return f"histogram_sum({native}) / histogram_count({native})\nor\n{total} / {count}"


def buckets(metric: str, window: str, *, where: str = "") -> str:
    """Observations a second by bucket, for a heat map."""
    native = f"sum(rate({metric}{where}[{window}]))"
    classic = f"sum by (le) (rate({metric}_bucket{where}[{window}]))"
    # The classic series have a label that the native one has not: without `on ()` both
    # would be drawn, one over the other.
    return f"{native}\nor on ()\n{classic}"


def _sum(by: tuple[str, ...]) -> str:
    return f"sum by ({', '.join(by)})" if by else "sum"
