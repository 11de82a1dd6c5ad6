"""Activities of an experiment as Chaos Toolkit has them: models, execution and tolerances."""

from __future__ import annotations

import importlib
import inspect
from typing import Any, Final, Literal

from pydantic import Field, field_validator

from exporter.errors import TritonwatchError
from exporter.settings import Settings
from loadtests.errors import LoadError

TOOLKIT: Final = "loadtests.chaos.toolkit"
"""The module of our own functions."""


class Pauses(Settings):
    """Seconds around an activity."""

    before: float = Field(default=0.0, ge=0, le=86_400)
    after: float = Field(default=0.0, ge=0, le=86_400)


class Provider(Settings):
    """A function of `loadtests.chaos.toolkit` and its arguments."""

    type: Literal["python"]
    module: Literal["loadtests.chaos.toolkit"]
    func: str = Field(min_length=1, max_length=100)
    arguments: dict[str, Any] = Field(default={})


class Activity(Settings):
    """An action or a probe."""

    name: str = Field(min_length=1, max_length=200)
    provider: Provider
    pauses: Pauses = Field(default=Pauses())


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

    @field_validator("tolerance")
    @classmethod
    def _is_tolerance(cls, given: Any) -> Any:
        if isinstance(given, dict):
            known = given.get("type") == "range" and _is_range(given.get("range"))
        else:
            known = given is None or isinstance(given, bool | int | float | str | list)
        if not known:
            raise ValueError(
                f"found {given!r}; want a value, a list of values, [low, high], or "
                "{type: range, range: [low, high]}"
            )
        return given


class Limit(Probe):
    """A probe that ends the experiment when its value is out of tolerance for too long."""

    type: Literal["probe"] = "probe"
    for_seconds: float = Field(default=0.0, ge=0, le=3600)
    """Uninterrupted time out of tolerance that ends it."""


class Hypothesis(Settings):
    """The steady state: probes with their tolerances."""

    title: str = Field(min_length=1, max_length=200)
    probes: tuple[Probe, ...] = Field(min_length=1, max_length=50)


def tolerates(tolerance: Any, value: Any) -> bool:
    """Return True if a value is within a tolerance.

    As in Chaos Toolkit: the value equals a scalar, is between two numbers, or is in
    any other list. None and NaN are never tolerated.
    """
    if value is None or value != value:  # noqa: PLR0124 - NaN
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


def perform(activity: Activity) -> Any:
    """Return the result of an activity.

    Raises:
        ActivityFailedError: it failed.
    """
    try:
        return own(activity.provider)(**activity.provider.arguments)
    except TritonwatchError as error:
        raise ActivityFailedError(str(error)) from error
    except Exception as error:  # an activity that breaks fails the experiment, no more
        raise ActivityFailedError(f"{type(error).__name__}: {error}") from error


def own(provider: Provider) -> Any:
    """Return our function that a provider names.

    Raises:
        ValueError: there is none, or it does not take these arguments.
    """
    module = importlib.import_module(TOOLKIT)
    found = getattr(module, provider.func, None)
    if found is None or getattr(found, "__module__", None) != TOOLKIT:
        raise ValueError(f"found no function {provider.func!r} in {TOOLKIT}")
    try:
        inspect.signature(found).bind(**provider.arguments)
    except TypeError as error:
        raise ValueError(f"{TOOLKIT}.{provider.func}: {error}") from None
    return found
