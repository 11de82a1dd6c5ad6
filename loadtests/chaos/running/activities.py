"""Activities of an experiment as Chaos Toolkit has them: models, execution and tolerances.

Our own functions are called and judged here; tolerances of other kinds, and providers that
are not ours, are Chaos Toolkit's own to judge and to run (`foreign.py`).
"""

from __future__ import annotations

import importlib
import inspect
import math
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field, model_validator

from exporter.errors import TritonwatchError
from exporter.settings import Settings
from loadtests.errors import LoadError

if TYPE_CHECKING:
    from loadtests.chaos.running.foreign import Foreign

TOOLKIT: Final = "loadtests.chaos.toolkit"
"""The module of our own functions."""


class Pauses(Settings):
    """Seconds around an activity."""

    before: float = Field(default=0.0, ge=0, le=86_400)
    after: float = Field(default=0.0, ge=0, le=86_400)


class Provider(Settings):
    """A function, a program or a URL."""

    type: Literal["python", "process", "http"]
    module: str | None = Field(default=None)
    func: str | None = Field(default=None)
    arguments: Any = Field(default_factory=dict)
    path: str | None = Field(default=None)
    url: str | None = Field(default=None)
    method: str | None = Field(default=None)
    headers: dict[str, Any] | None = Field(default=None)
    timeout: Any = Field(default=None)
    secrets: tuple[str, ...] | None = Field(default=None)
    max_retries: int | None = Field(default=None)
    verify_tls: bool | None = Field(default=None)
    expected_status: Any = Field(default=None)

    @model_validator(mode="after")
    def _whole(self) -> Provider:
        wanted = {
            "python": ("module", "func"),
            "process": ("path",),
            "http": ("url",),
        }[self.type]
        for key in wanted:
            if not getattr(self, key):
                raise ValueError(f"found no {key}; a {self.type} provider needs one")
        return self


class Activity(Settings):
    """An action or a probe."""

    name: str = Field(min_length=1, max_length=200)
    provider: Provider
    pauses: Pauses = Field(default=Pauses())
    background: bool = Field(default=False)
    controls: tuple[dict[str, Any], ...] = Field(default=())
    secrets: tuple[str, ...] = Field(default=())
    configuration: tuple[str, ...] = Field(default=())


class Action(Activity):
    """An activity that acts on the target."""

    type: Literal["action"]


class Probe(Activity):
    """An activity that returns a value."""

    type: Literal["probe"]
    tolerance: Any = Field(default=None)
    """Required value: a number, [low, high], {type: range, range: […]}, ….

    None asks only whether there is a value at all.
    """


class Limit(Probe):
    """A probe whose value, outside of its tolerance for so long, ends the experiment."""

    type: Literal["probe"] = "probe"
    for_seconds: float = Field(default=0.0, ge=0, le=3600)
    """Uninterrupted time that it takes."""


class Hypothesis(Settings):
    """The steady state: probes with their tolerances."""

    title: str = Field(min_length=1, max_length=200)
    probes: tuple[Probe, ...] = Field(min_length=1, max_length=50)
    controls: tuple[dict[str, Any], ...] = Field(default=())


def is_simple(tolerance: Any) -> bool:
    """Return whether `tolerates` can judge it."""
    if isinstance(tolerance, dict):
        return tolerance.get("type") == "range" and _is_range(tolerance.get("range"))
    return tolerance is None or isinstance(tolerance, bool | int | float | str | list)


def tolerates(tolerance: Any, value: Any) -> bool:
    """Return whether a value is as it has to be, for the tolerances that `is_simple`.

    As in Chaos Toolkit: a scalar is what the value equals, two numbers what it lies
    between, any other list what it is one of. No value is never tolerated.
    """
    if value is None:
        return False
    if tolerance is None:
        return True
    if isinstance(tolerance, dict):
        tolerance = tolerance["range"]
    if _is_range(tolerance):
        return _is_number(value) and tolerance[0] <= value <= tolerance[1]
    if isinstance(tolerance, list):
        return value in tolerance
    return bool(value == tolerance) and isinstance(value, bool) == isinstance(
        tolerance, bool
    )


def _is_range(value: Any) -> bool:
    return (
        isinstance(value, list | tuple)
        and len(value) == 2  # noqa: PLR2004 - low and high
        and all(map(_is_number, value))
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class ActivityFailedError(LoadError):
    """An action failed, or a probe returned no value."""


def is_ours(provider: Provider) -> bool:
    """Return whether it is one of this project's own functions."""
    return provider.type == "python" and provider.module == TOOLKIT


def perform(activity: Activity, foreign: Foreign | None) -> Any:
    """Return the result of an activity. `foreign` runs those that are not ours.

    Raises:
        ActivityFailedError: it failed.
    """
    if not is_ours(activity.provider):
        if foreign is None:
            raise ActivityFailedError(f"{activity.name!r} is not ours to run")
        return foreign.perform(activity)
    try:
        return own(activity.provider)(**activity.provider.arguments)
    except TritonwatchError as error:
        raise ActivityFailedError(str(error)) from error
    except Exception as error:  # an activity that breaks fails the experiment, no more
        raise ActivityFailedError(f"{type(error).__name__}: {error}") from error


def own(provider: Provider) -> Any:
    """Return our function that a provider names."""
    module = importlib.import_module(TOOLKIT)
    found = getattr(module, str(provider.func), None)
    if found is None or getattr(found, "__module__", None) != TOOLKIT:
        raise ActivityFailedError(f"found no function {provider.func!r} in {TOOLKIT}")
    try:
        inspect.signature(found).bind(**provider.arguments)
    except TypeError as error:
        raise ActivityFailedError(f"{TOOLKIT}.{provider.func}: {error}") from None
    return found


def judge(probe: Probe, value: Any, foreign: Foreign | None) -> bool:
    """Return whether a probe's value is within its tolerance.

    What programs and URLs give is a map with a status, which Chaos Toolkit judges.
    """
    if isinstance(value, float) and math.isnan(value):
        return False
    simple = is_ours(probe.provider) and is_simple(probe.tolerance)
    if simple or foreign is None:
        return is_simple(probe.tolerance) and tolerates(probe.tolerance, value)
    return foreign.judge(probe.tolerance, value)
