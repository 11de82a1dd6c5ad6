"""Selection of the features to name: the e-Benjamini-Hochberg procedure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def e_benjamini_hochberg(
    log_evidence: NDArray[np.float64], false_share: float
) -> list[int]:
    """Indices of the features to name, strongest first.

    With e-values e_(1) >= e_(2) >= ..., name the first k, the largest k for which
    k e_(k) / m >= 1 / `false_share`. The expected share of wrongly named features is at
    most `false_share` for any dependence between features.

    Reference: Wang, Ramdas (2022), "False discovery rate control with e-values".

    Example:
        >>> import numpy as np
        >>> e_benjamini_hochberg(np.log([1.0, 900.0, 2.0, 0.1]), 0.1)
        [1]
    """
    order = np.argsort(-log_evidence, kind="stable")
    rank = np.arange(1, log_evidence.shape[0] + 1)
    enough = np.log(rank) + log_evidence[order] >= np.log(
        max(log_evidence.shape[0], 1) / false_share
    )
    count = int(rank[enough].max()) if enough.any() else 0
    return [int(index) for index in order[:count]]
