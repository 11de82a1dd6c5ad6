"""A load run as described by a file or a command line: target, requests, schedule."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import (
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from exporter.config import config_file, config_problems
from exporter.config.configuration import Address
from exporter.errors import ConfigError
from exporter.own_requests.payload import InputSettings
from exporter.settings import Headers, Settings
from loadtests.errors import PlanError
from loadtests.load_objective import parse as parse_objective
from loadtests.load_objective import parse_limits
from loadtests.payloads.prompts import PromptSettings
from loadtests.profiles import AnyProfile
from loadtests.profiles.profile import Phase
from loadtests.target import Protocol, Target

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from loadtests.load_objective import Slo

MAX_VARIANTS: Final = 10_000
DEFAULT_ADDRESS: Final[Mapping[Protocol, str]] = {
    "grpc": "localhost:8001",
    "http": "localhost:8000",
    "openai-chat": "localhost:9000",
    "openai-completions": "localhost:9000",
}


class TargetSettings(Settings):
    """The port that is loaded."""

    protocol: Protocol = Field(default="grpc")
    """gRPC; HTTP with binary tensors, and `generate_stream` for streams; or an endpoint
    of an OpenAI-compatible server, as Triton's own front end or vLLM, streamed."""
    address: Address | None = Field(default=None)
    """host:port; by default localhost at Triton's port for the protocol."""
    headers: Headers = Field(default={}, max_length=100)
    """Sent with every request."""
    ca_file: str | None = Field(default=None)
    """TLS, checked against the certificates in this file; "" for the system's."""

    def target(self) -> Target:
        """The target, with defaults filled in."""
        return Target(
            self.protocol,
            self.address or DEFAULT_ADDRESS[self.protocol],
            {name: value.get_secret_value() for name, value in self.headers.items()},
            self.ca_file,
        )


_OF_TENSORS: Final = ("data", "inputs", "version", "batch")


class ModelSettings(Settings):
    """One model of the mix, and its requests."""

    model: str = Field(min_length=1, max_length=1000)
    """Name of the model."""
    version: str = Field(default="", max_length=100)
    """Version of the model; the server's choice where left out."""
    weight: float = Field(default=1.0, gt=0, le=1e6)
    """Share of all requests, over the sum of all weights."""
    data: str | None = Field(default=None)
    """File of samples: npz, parquet, or perf_analyzer's JSON. Without one, values are
    made from the model's signature."""
    prompts: PromptSettings | None = Field(default=None)
    """Prompts, where it is a language model; always over OpenAI's endpoints."""
    inputs: dict[str, InputSettings] = Field(default={}, max_length=1000)
    """Content of inputs, by name, where there is no file."""
    batch: int = Field(default=1, ge=1, le=4096)
    """Rows of one request, where the model takes batches."""
    variants: int | None = Field(default=None, ge=1, le=MAX_VARIANTS)
    """Limit of different requests, which are sent in turns. By default all of a file, else
    1,000 prompts, or 16 requests with values made from the model's signature; 128 MiB at most."""
    parameters: dict[str, bool | int | float | str] = Field(default={}, max_length=100)
    """Request parameters; of a language model like `temperature` or `ignore_eos`."""
    stream: bool = Field(default=True)
    """True to have a decoupled model stream its answers. False asks for whole ones, by
    `/generate`: with the protocol http."""
    tolerance: float = Field(default=1e-5, ge=0, le=1)
    """Largest difference of outputs from the file's correct answers, relative and
    absolute; of integers absolute only."""
    sequence_length: int = Field(default=10, ge=1, le=1_000_000)
    """Requests of one sequence, where the model is one of sequences."""

    @model_validator(mode="after")
    def _one_source(self) -> ModelSettings:
        if self.prompts is not None:
            self.refuse(("data", "inputs", "batch"), "prompts")
        return self

    def refuse(self, settings: tuple[str, ...], other: str) -> None:
        """Refuse settings that contradict another one.

        Raises:
            ValueError: one is set.
        """
        for name in settings:
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"found both {name} and {other}; want one of them")


class ClosedLoop(Settings):
    """A fixed number of requests in flight: a benchmark, not users."""

    kind: Literal["closed"] = "closed"
    concurrency: int = Field(default=1, ge=1, le=10_000)
    """Requests in flight."""
    duration_seconds: float = Field(default=10.0, gt=0, le=7 * 86_400)
    """Time in which requests are sent."""

    @property
    def length_seconds(self) -> float:
        """Time in which requests are sent."""
        return self.duration_seconds

    def phases(self) -> tuple[Phase, ...]:
        """The whole."""
        return (Phase(self.kind, 0.0, self.duration_seconds, None),)


AnyLoad = Annotated[ClosedLoop | AnyProfile, Field(discriminator="kind")]


class Scenario(Settings):
    """A load run."""

    name: str = Field(default="load", pattern=r"^[A-Za-z0-9_.-]{1,100}$")
    """Name in metrics and annotations."""
    target: TargetSettings = Field(default=TargetSettings())
    """Server to which requests are sent."""
    models: tuple[ModelSettings, ...] = Field(min_length=1, max_length=50)
    """Requests to send, drawn by weight."""
    profile: AnyLoad
    """Schedule: a profile of `tritonwatch load list`, or `closed`."""
    seed: int = Field(default=1, ge=0, lt=2**63)
    """Seed of arrivals, mix and values: the same seed sends the same."""
    timeout_seconds: float = Field(default=10.0, gt=0, le=3600)
    """Longest a request is waited for."""
    in_flight: int = Field(default=4096, ge=1, le=50_000)
    """Limit of requests in flight of an open loop; more are rejected, and count as
    misses."""
    slo: str | None = Field(default=None)
    """Objective to meet, like "p99<20ms,errors<0.1%", or of streams
    "ttft_p99<500ms,itl_p95<50ms"."""
    goodput: str | None = Field(default=None)
    """Limits that a request meets together to be a good one, like
    "ttft<500ms,itl<50ms"."""

    @field_validator("slo", "goodput")
    @classmethod
    def _has_valid_terms(cls, text: str | None, info: ValidationInfo) -> str | None:
        parse = parse_objective if info.field_name == "slo" else parse_limits
        try:
            if text is not None:
                parse(text)
        except PlanError as error:
            raise ValueError("; ".join(error.problems)) from None
        return text

    @model_validator(mode="after")
    def _fits_protocol(self) -> Scenario:
        if self.target.target().is_openai:
            protocol = f"protocol {self.target.protocol}"
            for model in self.models:
                model.refuse(_OF_TENSORS, protocol)
        return self

    def objective(self) -> Slo | None:
        """Return the SLO as terms."""
        return None if self.slo is None else parse_objective(self.slo)

    def limits(self) -> Slo | None:
        """Return the limits of goodput as terms."""
        return None if self.goodput is None else parse_limits(self.goodput)


def to_json(scenario: Scenario) -> str:
    """Return the scenario for another process, secrets included: not for files or logs."""
    document = scenario.model_dump(mode="json")
    document["target"]["headers"] = {
        name: value.get_secret_value()
        for name, value in scenario.target.headers.items()
    }
    return json.dumps(document)


def read(
    path: Path, environment: Mapping[str, str] = os.environ
) -> config_file.Document:
    """Return the document of a file, with its problems.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(config_file.MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(str(path), [f"cannot be read: {error.strerror}"]) from None
    return config_file.read(raw, str(path), environment)


def parse(document: config_file.Document, source: str) -> Scenario:
    """The scenario that the document describes.

    Raises:
        ConfigError: with every problem found.
    """
    found = [*document.problems, *config_problems.check(document, Scenario)]
    try:
        scenario = Scenario.model_validate(document.value)
    except ValidationError as error:
        found += config_problems.problems(error, document, Scenario)
    else:
        if not found:
            return scenario
    raise ConfigError(source, list(dict.fromkeys(found)))
