"""The four scenarios of MLPerf Inference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from loadtests.mlperf.schedule import server_schedule
from loadtests.plan import MAX_REQUESTS
from loadtests.profiles.profile import Profile
from loadtests.profiles.rate_curve import Curve

if TYPE_CHECKING:
    from loadtests.profiles.rate_curve import Floats

_SECONDS = 600.0
_LOADGEN_QUERIES = 100


class MlperfServer(Profile):
    """Poisson queries on LoadGen's own schedule; valid where p99 is within the limit.

    Latency counts from the scheduled time. At least 600 s, and as many queries as
    early stopping wants.
    """

    kind: Literal["mlperf_server"] = "mlperf_server"
    target_queries_per_second: float = Field(default=10.0, gt=0, le=1e6)
    """LoadGen's `server_target_qps`."""
    limit_seconds: float = Field(default=0.1, gt=0, le=3600)
    """LoadGen's `server_target_latency_ns`, in seconds."""
    percentile: float = Field(default=0.99, gt=0, lt=1)
    """Share of queries that must be within the limit."""
    least_seconds: float = Field(default=_SECONDS, ge=0, le=86_400)
    """LoadGen's `min_duration_ms`, in seconds."""
    least_queries: int = Field(default=_LOADGEN_QUERIES, ge=1, le=MAX_REQUESTS)
    """LoadGen's `min_query_count`."""
    schedule_rng_seed: int = Field(default=0, ge=0, lt=2**64)
    """LoadGen's seed of the same name: same seed, same schedule."""

    @property
    def length_seconds(self) -> float:
        """Time until the last query is due."""
        return float(self._due()[-1]) + 1e-9

    def arrivals(self, rng: np.random.Generator) -> Floats:  # noqa: ARG002 - own seed
        """LoadGen's schedule; the first query at 0."""
        return self._due()

    def curve(self) -> Curve:
        """A level line."""
        rate = self.target_queries_per_second
        return Curve.of((0.0, rate), (self.length_seconds, rate))

    def _due(self) -> Floats:
        return server_schedule(
            self.target_queries_per_second,
            self.least_seconds,
            self.least_queries,
            self.schedule_rng_seed,
        )


class MlperfStream(Profile):
    """One query after the other, each as soon as the one before is answered."""

    least_seconds: float = Field(default=_SECONDS, ge=0, le=86_400)
    """LoadGen's `min_duration_ms`, in seconds."""
    least_queries: int = Field(default=_LOADGEN_QUERIES, ge=1, le=MAX_REQUESTS)
    """LoadGen's `min_query_count`."""

    @property
    def concurrency(self) -> int:
        """One query in flight."""
        return 1

    @property
    def length_seconds(self) -> float:
        """The least that counts."""
        return max(self.least_seconds, 1e-3)

    def arrivals(self, rng: np.random.Generator) -> Floats:  # noqa: ARG002 - none
        """Every query as early as it may be sent."""
        return np.zeros(self.least_queries)


class MlperfSingleStream(MlperfStream):
    """One sample at a time; the result is early stopping's p90."""

    kind: Literal["mlperf_single_stream"] = "mlperf_single_stream"
    percentile: float = Field(default=0.9, gt=0, lt=1)
    """The percentile that is the result."""


class MlperfMultiStream(MlperfStream):
    """Eight samples in one query at a time; the result is early stopping's p99."""

    kind: Literal["mlperf_multi_stream"] = "mlperf_multi_stream"
    percentile: float = Field(default=0.99, gt=0, lt=1)
    """The percentile that is the result."""
    samples_per_query: int = Field(default=8, ge=1, le=4096)
    """Rows of one request's tensors."""


class MlperfOffline(Profile):
    """All samples at once; the result is samples a second until the last is done.

    LoadGen hands over one query with all samples and leaves batching to the system; here
    `in_flight` requests are kept under way until all are answered.
    """

    kind: Literal["mlperf_offline"] = "mlperf_offline"
    samples: int = Field(default=24_576, ge=1, le=MAX_REQUESTS)
    """Number of samples; MLPerf requires at least 24,576."""
    least_seconds: float = Field(default=_SECONDS, ge=0, le=86_400)
    """Shorter is not valid."""
    in_flight: int = Field(default=64, ge=1, le=10_000)
    """Requests under way at a time."""

    @property
    def concurrency(self) -> int:
        """The concurrency, `in_flight`."""
        return self.in_flight

    @property
    def length_seconds(self) -> float:
        """The least that counts."""
        return max(self.least_seconds, 1e-3)

    def arrivals(self, rng: np.random.Generator) -> Floats:  # noqa: ARG002 - none
        """Return all arrivals at 0."""
        return np.zeros(self.samples)
