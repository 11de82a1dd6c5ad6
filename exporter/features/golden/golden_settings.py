"""Settings of golden probes: held-out data sent in rounds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Literal

from pydantic import Field, field_validator, model_validator

from exporter.access.probe_base import Probe, ProbeSettings, Transport
from exporter.features.golden.golden_checks import EmbeddingCheck, GoldenCheck
from exporter.own_requests.payload import Scalar
from exporter.settings import ModelMention, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from exporter.access.collector_base import Access
    from exporter.features.golden.golden_formats import Format

_FORMATS: Final[dict[str, Format]] = {
    ".npz": "npz",
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".json": "json",
}


class GoldenData(Settings):
    """File of held-out samples, one per row, with labels, expected answers or both."""

    file: Path
    """npz, CSV, Parquet, or JSON in Triton's or perf_analyzer's input format. Columns
    are named after the model's inputs; `NAME[0]`, `NAME[1]` … form one vector. Expected
    answers are in columns `expected:OUTPUT`, as written by `tritonwatch golden record`.
    """
    format: Literal["npz", "csv", "parquet", "json"] | None = Field(default=None)
    """Format of the file. Default: by its suffix."""
    name: str = Field(default="", max_length=64, pattern=r"^[a-zA-Z0-9_.-]*$")
    """Value of the `dataset` label. If empty, the name of the file without its suffix.
    """
    columns: dict[str, tuple[str, ...]] = Field(default={}, max_length=1000)
    """Columns of each input, by input name, if they are named differently."""
    label: str | None = Field(default=None)
    """Column with the correct labels."""
    classes: tuple[Scalar, ...] = Field(default=(), max_length=10_000)
    """Labels in the order of the output's columns. Default: the numbers from 0. An output
    of one value may name the class instead: text, an integer, or a whole number if there
    are more than two classes."""
    output: str = Field(default="")
    """The output that the label belongs to. Optional if there is only one."""
    expected: dict[str, str] = Field(default={}, max_length=100)
    """Column of expected answers, by output name, in addition to columns
    `expected:OUTPUT`."""
    task: Literal["classification", "regression"] | None = Field(default=None)
    """Task of the model. By default, integer and text labels mean classification."""
    top_k: tuple[int, ...] = Field(default=(), max_length=5)
    """Values of k for top-k accuracy: an answer counts as correct if the label is among
    the k highest scores."""
    checks: tuple[GoldenCheck, ...] = Field(default=(), max_length=100)
    """Checks of outputs in place of equality with the expected answer: `regex`,
    `json_schema`, `embedding`. At most one for each output."""
    tolerance_relative: float = Field(default=1e-3, ge=0, le=1)
    """Largest relative difference of a float from the expected value."""
    tolerance_absolute: float = Field(default=1e-5, ge=0)
    """Absolute difference allowed in addition. Other datatypes must be equal."""
    allow_nan: bool = Field(default=False)
    """Accept NaN and infinities in inputs and expected answers as data."""

    @field_validator("top_k")
    @classmethod
    def _positive(cls, top_k: tuple[int, ...]) -> tuple[int, ...]:
        if any(k < 1 for k in top_k):
            raise ValueError("want integers of at least 1")
        return top_k

    @field_validator("checks")
    @classmethod
    def _once(cls, checks: tuple[GoldenCheck, ...]) -> tuple[GoldenCheck, ...]:
        outputs = [check.output for check in checks]
        twice = next((name for name in outputs if outputs.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"found two checks of output {twice!r}; want one")
        return checks

    @model_validator(mode="after")
    def _readable(self) -> GoldenData:
        if self.format is None and self.file.suffix not in _FORMATS:
            raise ValueError(
                f"found a file with the suffix {self.file.suffix!r}; want one of "
                f"{', '.join(_FORMATS)}, or `format`"
            )
        return self

    @property
    def embeddings(self) -> tuple[EmbeddingCheck, ...]:
        """The checks that need a model for embeddings."""
        return tuple(c for c in self.checks if isinstance(c, EmbeddingCheck))

    @property
    def chosen_format(self) -> Format:
        """The file's format."""
        return self.format or _FORMATS[self.file.suffix]

    @property
    def label_of_set(self) -> str:
        """Value of the `dataset` label."""
        return self.name or self.file.stem


class GoldenSettings(ProbeSettings):
    """Held-out data, a few samples at a time within a budget."""

    kind: Literal["golden"] = "golden"
    decides_serving: ClassVar[bool] = False
    data: GoldenData
    """The golden data."""
    protocol: Transport = Field(default="grpc")
    """Protocol of the requests. Over HTTP, decoupled models are asked on
    `generate_stream`, if it can carry their inputs; else over gRPC."""
    samples_per_request: int = Field(default=8, ge=1, le=1024)
    """Rows per request, limited to the model's maximum batch size, and with a check by
    embeddings to half of that of the embedding model."""
    request_share: float = Field(default=0.05, gt=0, le=0.5)
    """Maximum number of golden requests, as a share of all requests to the model in a
    minute."""
    busy_share: float = Field(default=0.05, gt=0, le=0.5)
    """Maximum time of golden requests, as a share of the model's busy time."""
    idle_requests_per_second: float = Field(default=0.5, gt=0, le=100)
    """Rate of requests to a model with little traffic."""
    idle_busy_ratio: float = Field(default=0.02, gt=0, le=1)
    """Maximum share of time for which these requests may keep the model busy."""
    baseline_accuracy: float | None = Field(default=None, gt=0, le=1)
    """Accuracy of the model when it is healthy. Default: the accuracy that `golden
    record` wrote, or else that of the first round, in which the model is assumed to be
    healthy. It is learnt anew when tritonwatch starts or the data change. A version that
    comes later has to be at least as accurate as the one before.
    """
    loss: float = Field(default=0.02, gt=0, lt=1)
    """Loss of accuracy that raises an alarm: 0.02 is two percentage points."""
    samples_per_false_alarm: float = Field(default=100_000, ge=100, le=1e8)
    """Mean number of samples between false alarms of an accuracy loss. If no limit
    achieves it, triton_golden_in_control_samples shows the lower number that applies.
    """
    ignored_input: str | None = Field(default=None)
    """An input that the answers do not depend on. It gets a new random value in each
    request, so that a response cache never answers in place of the model.
    """
    seed: int = Field(default=0, ge=0)
    """Seed of the order of samples."""

    @model_validator(mode="after")
    def _affords_embeddings(self) -> GoldenSettings:
        each, rate = self.requests_per_attempt, self.idle_requests_per_second
        if self.data.embeddings and 60 * rate < each:
            raise ValueError(
                f"found idle_requests_per_second {rate:g}; want at least {each / 60:.2g}: "
                f"with its embeddings, an answer takes up to {each} requests, and the "
                "budget is for a minute"
            )
        return self

    @property
    def requests_per_attempt(self) -> int:
        """The golden request, and those that embed its answer and the expected text."""
        return 1 + 2 * len(self.data.embeddings)

    def model_mentions(self) -> Iterator[ModelMention]:
        """The models of the filter, and those that embed answers."""
        yield from super().model_mentions()
        for place, check in enumerate(self.data.checks):
            if isinstance(check, EmbeddingCheck):
                yield ModelMention(f"data.checks[{place}].model", check.model)

    @property
    def dataset(self) -> str:
        """Value of the `dataset` label."""
        return self.data.label_of_set

    def build(self, access: Access) -> Probe:
        """The probe."""
        from exporter.features.golden.golden_probe import GoldenProbe  # noqa: PLC0415 - only if configured

        return GoldenProbe(self, access)
