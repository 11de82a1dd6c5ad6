"""LoadGen's verdict on a run of one of MLPerf's scenarios."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from pydantic import TypeAdapter, ValidationError

from loadtests.mlperf import verdict
from loadtests.profiles.mlperf import (
    MlperfMultiStream,
    MlperfOffline,
    MlperfServer,
    MlperfSingleStream,
)
from loadtests.result import Outcome

if TYPE_CHECKING:
    from loadtests.result import RunResult

_SCENARIOS = TypeAdapter[
    MlperfServer | MlperfSingleStream | MlperfMultiStream | MlperfOffline
](MlperfServer | MlperfSingleStream | MlperfMultiStream | MlperfOffline)


def judged(result: RunResult) -> verdict.Verdict | None:
    """The verdict; None for a run of another profile."""
    try:
        profile = _SCENARIOS.validate_python(dict(result.about.profile))
    except ValidationError:
        return None
    requests = result.requests
    right = requests.outcome == Outcome.OK
    late = np.where(right, requests.done - requests.intended, np.inf)
    if isinstance(profile, MlperfServer):
        return verdict.server(
            late,
            requests.intended,
            limit_seconds=profile.limit_seconds,
            percentile=profile.percentile,
            least_seconds=profile.least_seconds,
            least_queries=profile.least_queries,
        )
    if isinstance(profile, MlperfOffline):
        return verdict.offline(
            requests.count(Outcome.OK),
            float(np.nanmax(requests.done, initial=0.0)),
            least_seconds=profile.least_seconds,
            least_samples=profile.samples,
        )
    multiple = isinstance(profile, MlperfMultiStream)
    return verdict.stream(
        late,
        scenario="MultiStream" if multiple else "SingleStream",
        percentile=profile.percentile,
        last_issued_seconds=float(np.nanmax(requests.sent, initial=0.0)),
        least_seconds=profile.least_seconds,
        least_queries=profile.least_queries,
    )
