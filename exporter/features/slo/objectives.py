"""Objectives: the settings of `slos:` in the configuration, presets included."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import Field, model_validator

from exporter.catalogue.judged_metrics import judged_metric
from exporter.settings import ModelMention, Settings, pattern_mentions

if TYPE_CHECKING:
    from collections.abc import Iterator

Source = Literal["requests", "probes"]
LatencyKind = Literal["latency", "first_response", "response_gap"]
_STREAMS: Final = {"chat": (0.5, 0.05), "completion": (2.0, 0.2)}
"""Presets of streamed answers: seconds to the first response, and of a gap."""
_NAME: Final = r"^[a-z][a-z0-9_-]{0,62}$"


class _Objective(Settings):
    """Settings that every objective has."""

    name: str = Field(pattern=_NAME)
    """Value of the `slo` label."""
    objective_ratio: float = Field(gt=0, lt=1)
    """Share of events that must be good, like 0.99."""
    models: str = Field(default="*", max_length=200)
    """Shell-style pattern of the models whose events count."""
    window_days: float = Field(default=30, ge=1, le=90)
    """Length of the window of the error budget."""

    @property
    def needs(self) -> str:
        """Kind of the collector that reads its events; "" if that always runs."""
        return ""

    def matches(self, model: str) -> bool:
        """Return whether events of `model` count."""
        return fnmatchcase(model, self.models)

    def model_mentions(self) -> Iterator[ModelMention]:
        """The pattern of the models whose events count."""
        return pattern_mentions("models", [self.models])


class LatencyObjective(_Objective):
    """An objective on latency: requests up to the threshold are good.

    `latency`: time from a request to its answer. For streamed answers, `first_response`:
    time from a request to its first response; `response_gap`: time from one response to
    the next. A probe that timed out is bad whatever the threshold, except for gaps.
    """

    kind: LatencyKind = "latency"
    threshold_seconds: float = Field(gt=0, le=3600)
    """Latency above which a request is bad. The resolution is 2.2 %, the width of a
    bucket."""
    source: Source = Field(default="requests")
    """Events to count: production requests from traces, or probes."""

    @property
    def needs(self) -> str:
        """The collector of traces, for production's requests."""
        return "traces" if self.source == "requests" else ""


class AvailabilityObjective(_Objective):
    """An objective on availability: requests that succeeded are good."""

    kind: Literal["availability"] = "availability"
    source: Source | Literal["access_log"] = Field(default="requests")
    """Events to count: production requests from Triton's statistics, production
    requests from the access log of a proxy, or probes."""

    @property
    def needs(self) -> str:
        """The reader of access logs, for their requests."""
        return "access_log" if self.source == "access_log" else ""


class GoodputObjective(_Objective):
    """An objective on goodput: requests that met several limits at once are good."""

    kind: Literal["goodput"] = "goodput"
    limits: str
    """Name of an entry in `limits` of the traces collector."""

    @property
    def source(self) -> Source:
        """Production's requests: probes are not traced as clients."""
        return "requests"


class SignalObjective(_Objective):
    """An objective on a gauge, such as drift or cost: readings within bounds are good."""

    kind: Literal["signal"] = "signal"
    metric: str
    """Name of a gauge in METRICS.md, or of a counter, whose rate per second over all
    versions of a model is used."""
    labels: dict[str, str] = Field(default={}, max_length=20)
    """Label values that series must have."""
    at_least: float | None = Field(default=None)
    """Lower bound: readings below it are bad."""
    at_most: float | None = Field(default=None)
    """Upper bound: readings above it are bad."""

    @model_validator(mode="after")
    def _sensible(self) -> SignalObjective:
        judged_metric(self.metric, self.labels, ("gauge", "counter", "summary"))
        if self.at_least is None and self.at_most is None:
            raise ValueError("found neither at_least nor at_most; set one or both")
        return self


class PresetObjective(Settings):
    """Common objectives, named `NAME-…`.

    `interactive`: p95 < 100 ms and p99 < 500 ms. `realtime`: p95 < 50 ms and 99.9 % of
    requests succeed. `chat`: p99 of the first response < 500 ms and p95 of the gaps
    between responses < 50 ms. `completion`: the same with 2 s and 200 ms. `throughput`:
    at least `per_second` inferences per second of each model, over all its versions,
    in 99 % of readings. `energy`: at most
    `joules_per_inference`, including a share of the idle energy, in 99 % of readings.
    While Triton or the model is down there is no reading: judge that by availability.
    """

    kind: Literal["preset"] = "preset"
    name: str = Field(pattern=_NAME)
    """Prefix of the names of the preset's objectives."""
    preset: Literal[
        "interactive", "realtime", "chat", "completion", "throughput", "energy"
    ]
    """Name of the preset."""
    models: str = Field(default="*", max_length=200)
    """Shell-style pattern of the models whose events count."""
    source: Source = Field(default="requests")
    """Events to count: production requests or probes."""
    per_second: float | None = Field(default=None, gt=0)
    """For throughput: minimum number of inferences per second."""
    joules_per_inference: float | None = Field(default=None, gt=0)
    """For energy: maximum joules per inference, including a share of the idle energy.
    """
    boundary: Literal["gpu", "host"] = Field(default="gpu")
    """For energy: the boundary, either the GPU boards or the host."""

    def model_mentions(self) -> Iterator[ModelMention]:
        """The pattern of the models whose events count."""
        return pattern_mentions("models", [self.models])

    @model_validator(mode="after")
    def _complete(self) -> PresetObjective:
        if (self.preset == "throughput") != (self.per_second is not None):
            raise ValueError(
                f"found preset {self.preset} and per_second {self.per_second}; set "
                "per_second with preset throughput, and only there"
            )
        if (self.preset == "energy") != (self.joules_per_inference is not None):
            raise ValueError(
                f"found preset {self.preset} and joules_per_inference "
                f"{self.joules_per_inference}; set joules_per_inference with preset "
                "energy, and only there"
            )
        return self

    def expand(self) -> tuple[Objective, ...]:
        """Return the objectives of the preset."""
        if self.preset == "throughput":
            return (
                SignalObjective(
                    name=f"{self.name}-throughput",
                    objective_ratio=0.99,
                    models=self.models,
                    metric="triton_inferences_total",
                    at_least=self.per_second,
                ),
            )
        if self.preset == "energy":
            return (
                SignalObjective(
                    name=f"{self.name}-energy",
                    objective_ratio=0.99,
                    models=self.models,
                    metric="triton_inference_energy_joules",
                    labels={"boundary": self.boundary, "basis": "full"},
                    at_most=self.joules_per_inference,
                ),
            )
        if self.preset in _STREAMS:
            first, gap = _STREAMS[self.preset]
            return (
                self._latency("first-response", 0.99, first, "first_response"),
                self._latency("response-gap", 0.95, gap, "response_gap"),
            )
        if self.preset == "interactive":
            return (self._latency("p95", 0.95, 0.1), self._latency("p99", 0.99, 0.5))
        return (
            self._latency("p95", 0.95, 0.05),
            AvailabilityObjective(
                name=f"{self.name}-availability",
                objective_ratio=0.999,
                models=self.models,
                source=self.source,
            ),
        )

    def _latency(
        self, suffix: str, ratio: float, seconds: float, kind: LatencyKind = "latency"
    ) -> LatencyObjective:
        return LatencyObjective(
            kind=kind,
            name=f"{self.name}-{suffix}",
            objective_ratio=ratio,
            threshold_seconds=seconds,
            models=self.models,
            source=self.source,
        )


Objective = (
    LatencyObjective | AvailabilityObjective | GoodputObjective | SignalObjective
)
AnyObjective = Annotated[Objective | PresetObjective, Field(discriminator="kind")]


def expanded(objectives: tuple[AnyObjective, ...]) -> tuple[Objective, ...]:
    """Return the objectives, with each preset replaced by its objectives."""
    return tuple(
        found
        for objective in objectives
        for found in (
            objective.expand()
            if isinstance(objective, PresetObjective)
            else (objective,)
        )
    )
