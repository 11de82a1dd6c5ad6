"""An experiment: Chaos Toolkit's keys, and an extension that defines target and load.

    version: 1.0.0
    title: The server is frozen for a second
    description: Connections stay open and nothing answers.
    steady-state-hypothesis: {title: Users are served, probes: […]}
    method: […]
    rollbacks: […]
    extensions:
      - name: tritonwatch
        target: {kind: embedded, models: [digits_fp32]}
        load: {models: [{model: digits_fp32}], profile: {kind: poisson, requests_per_second: 100}}

https://chaostoolkit.org/reference/api/experiment/ has the format. Its providers are
the functions of `loadtests.chaos.toolkit`; extensions of other tools are kept and not read.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import (
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from exporter.config import config_file, config_problems
from exporter.errors import ConfigError
from exporter.settings import Settings
from loadtests import scenario as scenarios
from loadtests.chaos import faults
from loadtests.chaos.activities import (
    Action,
    Activity,
    Hypothesis,
    Limit,
    Probe,
    own,
)
from loadtests.chaos.measuring.detection import DetectSettings
from loadtests.chaos.measuring.observations import NAME
from loadtests.chaos.measuring.recovery import RecoverySettings
from loadtests.chaos.targets.chaos_target import HOST, AnyTarget
from loadtests.engine.loops import Backoff
from loadtests.profiles import AnyProfile
from loadtests.scenario import ModelSettings, Scenario, TargetSettings
from loadtests.target import Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loadtests.chaos.faults.fault import Fault

FOLDER: Final = Path(__file__).with_name("experiments")
_ACTION_SECONDS: Final = 10.0
"""Time allowed for one activity without its pauses, for schedules and deadlines."""
AnyActivity = Annotated[Action | Probe, Field(discriminator="type")]
_DURATION: Final = "duration_seconds"
_PROFILES: TypeAdapter[Any] = TypeAdapter(AnyProfile)


class TimingSettings(Settings):
    """Durations in addition to the method's own pauses."""

    before_seconds: float = Field(default=5.0, ge=1, le=3600)
    """Load before the method: the baseline."""
    after_seconds: float = Field(default=10.0, ge=1, le=3600)
    """Load after the rollbacks, to see it recover."""
    every_seconds: float = Field(default=0.5, ge=0.1, le=60)
    """Time from one check of the hypothesis to the next."""


class BlastRadius(Settings):
    """Limits on what faults may touch; others are refused."""

    text: str = Field(default="", max_length=1000)
    """Description for the reviewers of the experiment."""
    models: tuple[str, ...] | None = Field(default=None)
    """Models that faults may name; any where left out."""
    kinds: tuple[str, ...] | None = Field(default=None)
    """Kinds of faults; any where left out."""


class Extension(Settings):
    """Our extension of an experiment, in addition to Chaos Toolkit's own keys."""

    name: str = Field(pattern=f"^{NAME}$")
    target: AnyTarget
    """The target of the faults; it has to be on the allow-list."""
    load: LoadSettings | None = Field(default=None)
    """Load on the target during the experiment."""
    during: Literal["hold", "watch"] = Field(default="hold")
    """`hold`: the hypothesis has to hold during the fault; `watch`: it is only
    recorded."""
    timing: TimingSettings = Field(default=TimingSettings())
    """Time before and after the faults, and the interval of checks."""
    abort: tuple[Limit, ...] = Field(default=(), max_length=20)
    """Conditions that end the experiment early; all faults are then undone."""
    blast_radius: BlastRadius = Field(default=BlastRadius())
    """Limits on the parts that faults may touch."""
    seed: int = Field(default=1, ge=0, lt=2**63)
    """Seed of arrivals, values and all other random draws."""
    recovery: RecoverySettings = Field(default=RecoverySettings())
    """Criteria of recovery."""
    detect: tuple[DetectSettings, ...] = Field(default=(), max_length=20)
    """Metrics and alerts of the sidecar that have to detect the fault, and their
    deadlines."""
    repetitions: int = Field(default=1, ge=1, le=100)
    """Number of repetitions, each on a new target."""


class Experiment(Settings):
    """The keys of an experiment that are read; `Loaded.document` has all of them."""

    version: str = Field(default="1.0.0")
    title: str = Field(min_length=1, max_length=200)
    description: str = Field(min_length=1, max_length=10_000)
    tags: tuple[str, ...] = Field(default=())
    hypothesis: Hypothesis | None = Field(default=None, alias="steady-state-hypothesis")
    method: tuple[AnyActivity, ...] = Field(max_length=200)
    rollbacks: tuple[Action, ...] = Field(default=(), max_length=200)
    extensions: tuple[Extension | None, ...]
    contributions: dict[str, Any] = Field(default={})
    runtime: dict[str, Any] = Field(default={})

    @field_validator("extensions")
    @classmethod
    def _has_ours(
        cls, given: tuple[Extension | None, ...]
    ) -> tuple[Extension | None, ...]:
        if not any(given):
            raise ValueError(f"found no extension named {NAME}; want one with a target")
        return given

    @model_validator(mode="after")
    def _within_radius(self) -> Experiment:
        extension = self.extension
        for place, activity in enumerate(self.method):
            where = f"method[{place}]"
            fault = fault_of(activity, where)
            if fault is not None:
                _require_within(fault, extension.blast_radius, where)
                longest = getattr(fault, "longest_seconds", math.inf)
                if activity.pauses.after > longest:
                    raise ValueError(
                        f"found a pause of {activity.pauses.after:g} s in {where}, whose "
                        f"fault ends after longest_seconds: {longest:g}"
                    )
            if isinstance(activity, Probe) and activity.tolerance is not None:
                raise ValueError(
                    f"found a tolerance in {where}, where it is not compared; put the "
                    "probe in the steady-state hypothesis"
                )
        hypothesis = self.hypothesis.probes if self.hypothesis else ()
        others: tuple[Activity, ...] = (*self.rollbacks, *hypothesis, *extension.abort)
        for any_activity in (*self.method, *others):
            own(any_activity.provider)
        if any(activity.provider.func == "inject" for activity in others):
            raise ValueError("found inject outside of the method; want it there")
        return self

    @property
    def extension(self) -> Extension:
        """Our extension of the experiment."""
        return next(entry for entry in self.extensions if entry is not None)

    @property
    def touched(self) -> tuple[str, ...]:
        """Names, on the allow-list, of all that its faults affect."""
        found = map(fault_of, self.method)
        host = any(fault is not None and fault.of_host for fault in found)
        return (self.extension.target.name, *([HOST] if host else []))

    @property
    def method_seconds(self) -> float:
        """Maximum duration of method and rollbacks."""
        return sum(
            a.pauses.before + a.pauses.after + _ACTION_SECONDS
            for a in (*self.method, *self.rollbacks)
        )


@dataclass(frozen=True, slots=True)
class Loaded:
    """An experiment and the document of its file."""

    name: str
    """Name of the file, without its suffix."""
    document: Mapping[str, Any]
    """The whole of the file, for the journal."""
    experiment: Experiment
    folder: Path = Path()
    """Folder of the files that the experiment names."""

    def scenario(self, load: LoadSettings, address: str, seconds: float) -> Scenario:
        """The load run of this length against that address."""
        models = tuple(
            model
            if model.data is None
            else model.model_copy(update={"data": str(self.folder / model.data)})
            for model in load.models
        )
        return Scenario(
            name="chaos",
            target=TargetSettings(protocol=load.protocol, address=address),
            models=models,
            profile=load.profile_of(seconds),
            seed=self.experiment.extension.seed,
            timeout_seconds=load.timeout_seconds,
            in_flight=load.in_flight,
        )

    def changed(self, document: Mapping[str, Any]) -> Loaded:
        """The same with another document."""
        return replace(parse(document, self.name), folder=self.folder)


def fault_of(activity: Action | Probe, where: str = "method") -> Fault | None:
    """Return the fault that an activity injects; None where it injects none.

    Raises:
        ValueError: it is invalid.
    """
    provider = activity.provider
    if provider.func != "inject":
        return None
    return faults.parse(provider.arguments.get("fault"), where)


def _require_within(fault: Fault, radius: BlastRadius, where: str) -> None:
    kind = fault.name()
    if radius.kinds is not None and kind not in radius.kinds:
        raise ValueError(
            f"found the fault {kind!r} in {where}, which blast_radius.kinds does not "
            f"allow; want one of {', '.join(radius.kinds) or 'none'}"
        )
    model = getattr(fault, "model", None)
    if radius.models is not None and model is not None and model not in radius.models:
        raise ValueError(
            f"found the model {model!r} in {where}, which blast_radius.models does "
            f"not allow; want one of {', '.join(radius.models) or 'none'}"
        )


def load(path: Path, environment: Mapping[str, str] = os.environ) -> Loaded:
    """The experiment of a file, in YAML or JSON.

    Raises:
        ConfigError: with every problem of the file.
    """
    document = scenarios.read(path, environment)
    if document.problems:
        raise ConfigError(str(path), document.problems)
    return replace(
        parse(document.value, path.stem, str(path)), folder=path.absolute().parent
    )


def parse(document: Mapping[str, Any], name: str, source: str | None = None) -> Loaded:
    """The experiment that a document describes.

    Raises:
        ConfigError: with every problem found.
    """
    read = dict(document)
    given = read.get("extensions")
    if isinstance(given, list):
        read["extensions"] = [_ours(entry) for entry in given]
    checked = config_file.Document(written=read, value=read)
    found = config_problems.check(checked, Experiment)
    try:
        experiment = Experiment.model_validate(read)
    except ValidationError as error:
        found += config_problems.problems(error, checked, Experiment)
    else:
        if not found:
            return Loaded(name, document, experiment)
    raise ConfigError(source or name, list(dict.fromkeys(found)))


def _ours(entry: Any) -> Any:
    """Return our extension, with a single expectation as a list of it."""
    if not isinstance(entry, dict) or entry.get("name") != NAME:
        return None
    detect = entry.get("detect")
    return {**entry, "detect": [detect]} if isinstance(detect, dict) else entry


def find(name: str) -> Path:
    """A file by its path, or a shipped experiment by its name.

    Raises:
        ConfigError: there is neither.
    """
    path = Path(name)
    if path.suffix in {".yaml", ".yml", ".json"}:
        return path
    shipped = FOLDER / f"{name}.yaml"
    if shipped.is_file():
        return shipped
    known = ", ".join(path.stem for path in names()) or "none"
    raise ConfigError(name, [f"found no experiment of this name; available: {known}"])


def names() -> list[Path]:
    """The shipped experiments."""
    return sorted(FOLDER.glob("*.yaml"))


class LoadSettings(Settings):
    """The load of an experiment: an open loop, as long as the experiment."""

    models: tuple[ModelSettings, ...] = Field(min_length=1, max_length=50)
    """Requests to send, drawn by weight."""
    profile: dict[str, Any] = Field(
        default={"kind": "poisson", "requests_per_second": 50}
    )
    """Schedule: a profile of `tritonwatch load list`. The experiment sets its duration.
    """
    protocol: Protocol = Field(default="grpc")
    """gRPC, or HTTP with binary tensors."""
    timeout_seconds: float = Field(default=1.0, gt=0, le=60)
    """Longest a user waits."""
    in_flight: int = Field(default=4096, ge=1, le=50_000)
    """Limit of requests in flight; more are rejected, and count as misses."""
    backoff: Backoff = Field(default=Backoff())
    """Reconnects of the client."""

    @model_validator(mode="after")
    def _has_profile(self) -> LoadSettings:
        self.profile_of(1.0)
        return self

    def profile_of(self, seconds: float) -> AnyProfile:
        """The profile for an experiment of this length.

        Raises:
            ValueError: it is invalid, or has a length of its own.
        """
        try:
            profile: AnyProfile = _PROFILES.validate_python(
                {**self.profile, _DURATION: seconds}
            )
        except ValidationError as error:
            wrong = error.errors(include_url=False)[0]
            where = ".".join(map(str, wrong["loc"][1:]))
            raise ValueError(
                f"invalid profile: {where}: {wrong['msg']}; want one "
                "with a duration of its own (`duration_seconds`), like "
                "{kind: poisson, requests_per_second: 50}"
            ) from None
        return profile
