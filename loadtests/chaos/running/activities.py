"""Runs one activity of an experiment and judges what a probe gives."""

from __future__ import annotations

import importlib
import inspect
import math
from typing import TYPE_CHECKING, Any

from exporter.errors import TritonwatchError
from loadtests.chaos.experiment import TOOLKIT
from loadtests.chaos.running.hypothesis import is_simple, tolerates
from loadtests.errors import LoadError

if TYPE_CHECKING:
    from loadtests.chaos.running.foreign import Foreign
    from loadtests.chaos.running.hypothesis import Activity, Probe, Provider


class ActivityFailedError(LoadError):
    """An activity did not do what it is for, or a probe gave no answer."""


def is_ours(provider: Provider) -> bool:
    """Return whether it is one of this project's own functions."""
    return provider.type == "python" and provider.module == TOOLKIT


def perform(activity: Activity, foreign: Foreign | None) -> Any:
    """Return what it gives. `foreign` runs what is not ours.

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
    """The function of ours that a provider names.

    Raises:
        ActivityFailedError: there is none of this name, or it takes no such arguments.
    """
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
