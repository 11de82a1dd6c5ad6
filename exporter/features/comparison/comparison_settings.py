"""The `comparisons:` of the configuration file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Self, get_args

from pydantic import Field, field_validator, model_validator

from exporter.access.collector_base import CollectorSettings
from exporter.access.inventory import find_model
from exporter.errors import InvalidRequestError
from exporter.own_requests.payload import InputSettings
from exporter.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from exporter.access.collector_base import Access, Collector
    from exporter.access.inventory import Inventory
    from exporter.triton.protocol_types import ModelSpec

Metric = Literal[
    "agreement",
    "output_distance",
    "accuracy",
    "success",
    "latency_mean",
    "latency_variance",
    "latency_p50",
    "latency_p95",
    "latency_p99",
    "energy",
    "memory",
]
METRICS: Final[tuple[Metric, ...]] = get_args(Metric)
PRODUCTION: Final[frozenset[Metric]] = frozenset(
    {"success", "latency_mean", "latency_p50", "latency_p95", "latency_p99", "energy"}
)
"""Metrics that can be compared from production statistics alone."""
_REFERENCE: Final = re.compile(r"(?P<model>.+?)(?::(?P<version>[0-9]+))?", re.DOTALL)


class MarginSettings(Settings):
    """Margins: the smallest differences that matter."""

    agreement: float = Field(default=0.02, ge=0, le=1)
    """Share of answers on which the two models may disagree."""
    output_distance: float = Field(default=0.05, ge=0, le=1)
    """Mean distance between the answers: norm of their difference divided by the sum of
    their norms."""
    accuracy: float = Field(default=0.01, ge=0, le=1)
    """Allowed decrease of accuracy, as a difference of shares."""
    success: float = Field(default=0.01, ge=0, le=1)
    """Allowed decrease of the share of requests answered, as a difference of shares."""
    latency_mean: float = Field(default=0.05, ge=0, le=100)
    """Allowed increase, relative to the champion. The same applies to the settings that
    follow."""
    latency_variance: float = Field(default=0.5, ge=0, le=100)
    """See latency_mean."""
    latency_p50: float = Field(default=0.05, ge=0, le=100)
    """See latency_mean."""
    latency_p95: float = Field(default=0.05, ge=0, le=100)
    """See latency_mean."""
    latency_p99: float = Field(default=0.1, ge=0, le=100)
    """See latency_mean."""
    energy: float = Field(default=0.05, ge=0, le=100)
    """Joules per inference; see latency_mean."""
    memory: float = Field(default=0.05, ge=0, le=100)
    """See latency_mean."""

    def of(self, metric: Metric) -> float:
        """The margin of one metric."""
        return float(getattr(self, metric))


class BudgetSettings(Settings):
    """Limits on the load that a shadow comparison adds to the server."""

    request_ratio: float | None = Field(default=0.05, gt=0, le=1)
    """Maximum number of inferences sent to each of the two models, as a share of the
    champion's production inferences. A batch of n counts n. null: no limit.
    """
    busy_ratio: float | None = Field(default=0.05, gt=0, le=1)
    """Maximum busy time that the comparison causes on both models together, as a share
    of the champion's busy time for production. null: no limit."""
    idle_pairs_per_second: float = Field(default=1.0, ge=0, le=10_000)
    """Pairs per second once the champion has had no production traffic for two seconds;
    0 sends none. Has no effect if `request_ratio` and `busy_ratio` are both null.
    """
    max_pairs_per_second: float = Field(default=20.0, gt=0, le=10_000)
    """Maximum number of pairs per second, with or without production traffic."""


class SourceSettings(Settings):
    """Source of a shadow comparison's inputs."""

    source: Literal["auto", "mirror", "golden", "synthetic"] = Field(default="auto")
    """Mirrored production requests from a tap, rows of a file, or generated tensors.
    `auto` uses the first of these that is available."""
    file: Path | None = Field(default=None)
    """A golden file (npz, CSV, Parquet, JSON) with a column for each input and a row
    for each sample; to compare accuracy, also the correct classes."""
    label: str = Field(default="label", min_length=1, max_length=256)
    """Column with the correct classes, if the file has one."""
    overrides: dict[str, InputSettings] = Field(default={}, max_length=1000)
    """Content of generated tensors, by input name."""

    @model_validator(mode="after")
    def _has_file(self) -> Self:
        if self.source == "golden" and self.file is None:
            raise ValueError("found source golden without a file; set `file`")
        return self


class ComparisonSettings(Settings):
    """Champion against challenger."""

    name: str = Field(default=..., pattern=r"^[a-zA-Z0-9_.-]{1,64}$")
    """Value of the `comparison` label."""
    champion: str = Field(default=..., min_length=1, max_length=1024)
    """MODEL or MODEL:VERSION. Without a version, the latest ready version."""
    challenger: str = Field(default=..., min_length=1, max_length=1024)
    """The same."""
    mode: Literal["shadow", "ab"] = Field(default="shadow")
    """`shadow`: send the same requests to both models. `ab`: compare the production
    requests that each model receives, from statistics and traces; nothing is sent."""
    metrics: tuple[Metric, ...] = Field(default=())
    """Metrics to compare. If empty, all metrics that the mode and the inputs support.
    """
    margins: MarginSettings = Field(default=MarginSettings())
    """Margins: the smallest differences that matter."""
    alpha: float = Field(default=0.05, gt=0, lt=1)
    """Upper bound on the probability of any false positive over all metrics and
    evaluations. It is divided equally among the metrics.
    """
    budget: BudgetSettings = Field(default=BudgetSettings())
    """Limits on the load that a shadow comparison adds to the server."""
    inputs: SourceSettings = Field(default=SourceSettings())
    """Source of the inputs."""
    agreement: Literal["auto", "argmax", "close"] = Field(default="auto")
    """Definition of agreement: the same class (`argmax`) or all values within the
    tolerance (`close`). `auto` compares classes where an output is a row of at least
    two floats.
    """
    tolerance: float = Field(default=1e-3, ge=0, le=1)
    """Relative, for `close`."""
    timeout_seconds: float = Field(default=1.0, gt=0, le=600)
    """Later answers count as missing."""
    max_pairs: int = Field(default=50_000, ge=100, le=1_000_000)
    """Number of pairs after which the verdicts are final and no more requests are sent.
    """
    seed: int = Field(default=0, ge=0)
    """Seed of the inputs and of the order in which the two models get their requests.
    """

    @field_validator("metrics")
    @classmethod
    def _each_once(cls, metrics: Sequence[Metric]) -> Sequence[Metric]:
        doubled = sorted({m for m in metrics if metrics.count(m) > 1})
        if doubled:
            raise ValueError(f"found metrics listed twice: {doubled}; list each once")
        return metrics

    @model_validator(mode="after")
    def _two_that_differ(self) -> Self:
        if reference(self.champion) == reference(self.challenger):
            raise ValueError(
                "champion and challenger are the same; want two models, or two "
                "versions of a model"
            )
        beyond = sorted(set(self.metrics) - PRODUCTION)
        if self.mode == "ab" and beyond:
            raise ValueError(
                f"found {beyond} with mode ab, in which the models get different "
                f"requests; want some of {sorted(PRODUCTION)}"
            )
        return self

    def models_in(self, inventory: Inventory) -> tuple[ModelSpec, ModelSpec]:
        """Return champion and challenger as the server has them.

        Raises:
            InvalidRequestError: one of them is not ready.
        """
        found = []
        for text in (self.champion, self.challenger):
            spec = find_model(inventory, *reference(text))
            if spec is None:
                raise InvalidRequestError(
                    f"{text} is not among the server's ready models"
                )
            found.append(spec)
        return found[0], found[1]

    @property
    def wanted(self) -> tuple[Metric, ...]:
        """The metrics that are compared."""
        if self.metrics:
            return self.metrics
        if self.mode == "ab":
            return tuple(sorted(PRODUCTION))
        # Only a file can have the correct classes.
        has_file = self.inputs.file and self.inputs.source in {"auto", "golden"}
        return tuple(m for m in METRICS if m != "accuracy" or has_file)


def reference(text: str) -> tuple[str, str]:
    """(model, version) of "MODEL" or "MODEL:VERSION"; version "" is the latest."""
    found = _REFERENCE.fullmatch(text)
    return (text, "") if found is None else (found["model"], found["version"] or "")


class ComparisonCollectorSettings(CollectorSettings):
    """Built from `comparisons:`."""

    interval_seconds: float = Field(default=2.0, gt=0.05, le=3600)
    """Time between two updates of the results."""
    deadline_seconds: float = Field(default=30.0, gt=0, le=3600)
    """Intervals of many pairs take a moment."""
    comparisons: tuple[ComparisonSettings, ...] = Field(default=())
    """As configured."""

    def build(self, access: Access) -> Collector:
        """The collector."""
        from exporter.features.comparison.comparison_collector import (  # noqa: PLC0415 - if configured
            ComparisonCollector,
        )

        return ComparisonCollector(self, access)
