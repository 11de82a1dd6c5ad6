"""Parts of an experiment that are Chaos Toolkit's own, run by its library."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from loadtests.chaos.running.activities import ActivityFailedError, is_ours, is_simple
from loadtests.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from loadtests.chaos.experiment import Loaded
    from loadtests.chaos.running.activities import Activity


CONTROL: Final = "loadtests.chaos.running.control"
"""Our control module, which Chaos Toolkit's own runner needs and this one does not."""


def library(part: str, why: str) -> ModuleType:
    """A module of chaoslib.

    Raises:
        PlanError: it is not installed.
    """
    try:
        import chaoslib  # noqa: PLC0415 - an extra, and heavy

        return importlib.import_module(f"{chaoslib.__name__}.{part}")
    except ImportError:
        raise PlanError(
            f"{why} needs Chaos Toolkit's library, which is not installed; "
            "pip install 'tritonwatch[chaos]'",
            "the experiment",
        ) from None


def activities_of(loaded: Loaded) -> list[Activity]:
    """Return the activities of an experiment that are not ours."""
    experiment = loaded.experiment
    hypothesis = experiment.hypothesis
    probes = () if hypothesis is None else hypothesis.probes
    limits = experiment.extension.abort
    every = (*probes, *experiment.method, *experiment.rollbacks, *limits)
    return [activity for activity in every if not is_ours(activity.provider)]


def needed_by(loaded: Loaded) -> str | None:
    """The first thing that our own code does not do; None where it does everything."""
    experiment = loaded.experiment
    for activity in activities_of(loaded):
        return f"{activity.name!r}, a {activity.provider.type} provider,"
    hypothesis = experiment.hypothesis
    probes = () if hypothesis is None else hypothesis.probes
    for probe in (*probes, *experiment.extension.abort):
        if not is_simple(probe.tolerance):
            return f"the tolerance of {probe.name!r}"
    for control in experiment.controls:
        if control.get("provider", {}).get("module") != CONTROL:
            return f"the control {control.get('name')!r}"
    return None


class Foreign:
    """The library, with the configuration and secrets of one experiment.

    Raises:
        PlanError: it is not installed.
    """

    def __init__(self, document: Mapping[str, Any], why: str) -> None:
        self._activity = library("activity", why)
        self._hypothesis = library("hypothesis", why)
        self._failed = library("exceptions", why).ChaosException
        configuration = library("configuration", why)
        secrets = library("secret", why)
        self._configuration = configuration.load_configuration(
            document.get("configuration", {})
        )
        self._secrets = secrets.load_secrets(
            document.get("secrets", {}), self._configuration
        )

    def perform(self, activity: Activity) -> Any:
        """Return the result of an activity.

        Raises:
            ActivityFailedError: it failed.
        """
        wire = activity.model_dump(mode="json", exclude_unset=True)
        try:
            return self._activity.run_activity(wire, self._configuration, self._secrets)
        except self._failed as error:
            raise ActivityFailedError(str(error)) from error
        except Exception as error:  # whatever others' code raises
            raise ActivityFailedError(f"{type(error).__name__}: {error}") from error

    def judge(self, tolerance: Any, value: Any) -> bool:
        """Return whether the value is tolerated."""
        try:
            return bool(
                self._hypothesis.within_tolerance(
                    tolerance, value, self._configuration, self._secrets
                )
            )
        except Exception:  # noqa: BLE001 - what cannot be judged is not tolerated
            return False


def validate(document: Mapping[str, Any]) -> None:
    """Validate an experiment with Chaos Toolkit.

    Raises:
        PlanError: it would refuse it, or it is not installed.
    """
    experiment = library("experiment", "validation")
    failed = library("exceptions", "validation").ChaosException
    try:
        experiment.ensure_experiment_is_valid(dict(document))
    except failed as error:
        raise PlanError(
            f"Chaos Toolkit refuses it: {error}", "the experiment"
        ) from None


def with_control(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the experiment with the control that `chaos run` needs for our activities."""
    controls = list(document.get("controls", ()))
    if all(one.get("provider", {}).get("module") != CONTROL for one in controls):
        provider = {"type": "python", "module": CONTROL}
        controls.append({"name": "tritonwatch", "provider": provider})
    return {**document, "controls": controls}
