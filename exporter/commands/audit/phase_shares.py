"""The phases of a request's time, by model, for bars and findings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import mean, median
from typing import TYPE_CHECKING, Final, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Iterator

    from exporter.access.inventory import ModelKey
    from exporter.commands.audit.audit_evidence import Evidence

Phase = Literal[
    "network", "queue", "compute_input", "compute_infer", "compute_output", "other"
]
PHASES: Final[tuple[Phase, ...]] = get_args(Phase)
ENOUGH_PAIRS: Final = 3
CAVEAT: Final = (
    "Means hide tails. Requests of other probes, a running sidecar's among them, count "
    "as production here."
)


@dataclass(frozen=True, slots=True)
class TimeShare:
    """Mean seconds of one request by phase, and what they were read from.

    `network` is known where requests of ours could be told apart: from the path between
    this process and the server, client library included. `other` is what the server
    counts in a request and in none of its phases. None is unknown.
    """

    model: str
    version: str
    source: Literal["window", "cumulative"]
    requests: int
    network: float | None
    queue: float
    compute_input: float
    compute_infer: float
    compute_output: float
    other: float

    @property
    def server_seconds(self) -> float:
        """Total time that the server counts."""
        return sum(self.seconds(phase) for phase in PHASES if phase != "network")

    @property
    def total_seconds(self) -> float:
        """The server's time and, where known, the network's."""
        return self.server_seconds + self.seconds("network")

    def seconds(self, phase: Phase) -> float:
        """One phase; 0 where unknown."""
        value: float | None = getattr(self, phase)
        return value or 0.0

    def ratio(self, phase: Phase) -> float:
        """One phase's share of the total, 0 to 1."""
        total = self.total_seconds
        return self.seconds(phase) / total if total else 0.0


@dataclass(frozen=True, slots=True)
class Path:
    """Both sides of our own requests to one model over gRPC, in seconds."""

    requests: int
    client_p50: float
    server_p50: float
    network: float
    """Median time of a request outside the server."""
    compute_mean: float
    compute_p50: float


def path_of(evidence: Evidence, key: ModelKey) -> Path | None:
    """Return both sides of our own gRPC requests; None with too few of them."""
    pairs = [
        pair
        for probed in evidence.probes
        if probed.target.key == key and probed.target.protocol == "grpc"
        for pair in probed.paired
    ]
    if len(pairs) < ENOUGH_PAIRS:
        return None
    return Path(
        len(pairs),
        median(p.client_seconds for p in pairs),
        median(p.server_seconds for p in pairs),
        # Request by request: one that was slow in the server says nothing of the way.
        median(max(0.0, p.client_seconds - p.server_seconds) for p in pairs),
        mean(p.compute_seconds for p in pairs),
        median(p.compute_seconds for p in pairs),
    )


def time_shares(evidence: Evidence) -> Iterator[TimeShare]:
    """One for each model with enough requests, those that cost the server most first."""
    keys = sorted(
        evidence.inventory.models,
        key=lambda key: -_cost(evidence, key),
    )
    for key in keys:
        share = share_of(evidence, key)
        if share is not None:
            yield share


def _cost(evidence: Evidence, key: ModelKey) -> int:
    traffic = evidence.traffic(key)
    return traffic.statistics.success.ns if traffic else 0


def share_of(evidence: Evidence, key: ModelKey) -> TimeShare | None:
    """Return one model's time by phase; None without enough requests."""
    traffic = evidence.traffic(key)
    if traffic is None:
        return None
    path = path_of(evidence, key)
    mean_seconds = traffic.mean_seconds
    share = TimeShare(
        model=key[0],
        version=key[1],
        source=traffic.source,
        requests=traffic.requests,
        network=path.network if path else None,
        queue=mean_seconds("queue"),
        compute_input=mean_seconds("compute_input"),
        compute_infer=mean_seconds("compute_infer"),
        compute_output=mean_seconds("compute_output"),
        other=0.0,
    )
    rest = mean_seconds("success") - share.server_seconds
    # Triton counts whole nanoseconds; less is the error of the sum.
    return replace(share, other=rest if rest > 1e-9 else 0.0)  # noqa: PLR2004
