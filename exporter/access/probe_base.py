"""The base classes of probes: settings, targets, and one verdict for each attempt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    ClassVar,
    Final,
    Literal,
    Protocol,
    runtime_checkable,
)

from pydantic import Field

from exporter import errors
from exporter.settings import ModelFilter, ModelMention, Settings, below

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from exporter.access.collector_base import Access
    from exporter.access.inventory import Inventory, ModelKey
    from exporter.catalogue.probe_outcomes import Outcome
    from exporter.samples import AnySample

Transport = Literal["grpc", "http"]
_OUTCOMES: Final[Mapping[type[errors.TritonError], Outcome]] = {
    errors.BusyError: "backlog",
    errors.DeadlineError: "timeout",
    errors.NotSentError: "late",
    errors.UnavailableError: "unavailable",
    errors.DeniedError: "configuration",
    errors.UnsendableError: "configuration",
    errors.InvalidRequestError: "invalid",
    errors.ModelError: "model_error",
    errors.ProtocolError: "bad_output",
}


def outcome_of(error: errors.TritonError) -> Outcome:
    """Return the outcome of a probe whose request ended with this error."""
    return next(
        outcome for kind, outcome in _OUTCOMES.items() if isinstance(error, kind)
    )


class ProbeSettings(Settings):
    """Settings that every probe has."""

    decides_serving: ClassVar[bool] = True
    """True if its verdicts count for triton_model_serving."""
    name: str = Field(default="", max_length=64, pattern=r"^[a-zA-Z0-9_.-]*$")
    """Value of the `probe` label and name of the module in /probe. If empty, the kind.
    """
    enabled: bool = Field(default=True)
    """Run this probe."""
    interval_seconds: float = Field(default=5.0, gt=0.01, le=86400)
    """Time between two probes of one model by one protocol."""
    jitter_ratio: float = Field(default=0.1, ge=0, le=0.5)
    """Share of the interval by which each start is shifted at random, so that several
    replicas do not probe at the same time."""
    timeout_seconds: float = Field(default=1.0, gt=0, le=600)
    """A later answer counts as a timeout."""
    linger_seconds: float = Field(default=2.0, ge=0, le=600)
    """Time for which to keep waiting for a late answer. The probe is reported as a
    timeout at once and stays one, but the request can then be recognised as our own in
    Triton's counts.
    """
    max_requests_per_second: float = Field(default=10.0, gt=0, le=10_000)
    """Maximum rate over all models. If there are too many models for it, the interval
    becomes longer (triton_probe_interval_seconds)."""
    models: ModelFilter = Field(default=ModelFilter())
    """Which of the watched models to probe."""
    window_seconds: float = Field(default=300.0, gt=0, le=86400)
    """Length of the sliding window of triton_probe_latency_seconds."""

    @property
    def label(self) -> str:
        """The probe's name, which is its kind unless the config gives another."""
        return self.name or str(getattr(self, "kind", ""))

    @property
    def requests_per_attempt(self) -> int:
        """Most requests that one attempt sends."""
        return 1

    def model_mentions(self) -> Iterable[ModelMention]:
        """The models of the filter."""
        return below("models", self.models.model_mentions())

    def build(self, access: Access) -> Probe:
        """The probe these settings describe."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Target:
    """One thing that is probed: a model version by one protocol."""

    key: ModelKey
    protocol: Transport


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one attempt. `detail` is the reason why it is not ok, for people.

    `duration_seconds` is None where nothing was timed: no connection, no request.
    """

    outcome: Outcome
    duration_seconds: float | None = None
    request_id: str = ""
    detail: str = ""
    first_response_seconds: float | None = None
    """Time to the first response of a streamed answer."""
    gap_seconds: tuple[float, ...] = ()
    """Times between its responses."""
    over_seconds: float = 0.0
    """Time by which a stalled answer exceeded its limit."""
    is_repeated: bool = False
    """True if no request was sent since an earlier verdict, which still holds."""
    is_rejected: bool = False
    """True if the queue of the model, or of a step, had no room for the request."""


class Probe(Protocol):
    """Probes targets, one attempt at a time; the scheduler decides when."""

    def targets(self, inventory: Inventory) -> Sequence[Target]:
        """Return the targets to probe in this inventory."""
        ...

    def attempt(self, target: Target) -> Verdict | None:
        """Send a request from a worker thread, within timeout and linger; None: none was sent.

        Raises nothing of the server's making: that is what verdicts are for.
        """
        ...


@runtime_checkable
class Telling(Protocol):
    """A probe that knows more than its verdicts say."""

    def samples(self) -> Sequence[AnySample]:
        """Return all samples; reads memory only."""
        ...


@runtime_checkable
class Timed(Protocol):
    """A probe whose attempts also take time before and after the request."""

    def waited_seconds(self, target: Target) -> float:
        """Return how long the latest request of the latest attempt has been or was under way.

        0 before one is sent.
        """
        ...

    def judges_late(self, target: Target) -> bool:
        """Return whether only the probe can tell what a late answer means."""
        ...

    def note_verdict(self, target: Target, verdict: Verdict) -> None:
        """Take the final verdict on the latest attempt, our own delay considered."""
        ...
