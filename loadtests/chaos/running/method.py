"""The method of an experiment and its rollbacks: activities in order, with pauses."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final

from loadtests.chaos.measuring.evidence import Step
from loadtests.chaos.running.activities import ActivityFailedError, perform
from loadtests.chaos.running.hypothesis import Action

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadtests.chaos.experiment import Experiment
    from loadtests.chaos.measuring.evidence import Part
    from loadtests.chaos.measuring.record import Record
    from loadtests.chaos.running.foreign import Foreign
    from loadtests.chaos.running.hypothesis import Activity

_JOIN_SECONDS: Final = 10.0


class Method:
    """Runs activities until `stop` is set. A failed action ends what is run."""

    def __init__(
        self,
        experiment: Experiment,
        record: Record,
        foreign: Foreign | None,
        stop: threading.Event,
    ) -> None:
        self._experiment = experiment
        self._record = record
        self._foreign = foreign
        self._stop = stop

    def run(self, activities: Sequence[Activity], part: Part) -> str | None:
        """Run them; what failed, None where nothing did.

        A failed rollback keeps none of the others from being tried.
        """
        beside: list[threading.Thread] = []
        failed: list[str] = []
        for activity in activities:
            if self._stop.wait(activity.pauses.before):
                break
            if activity.background:
                thread = threading.Thread(
                    target=self._one, args=(activity, part, failed), daemon=True
                )
                thread.start()
                beside.append(thread)
            else:
                self._one(activity, part, failed)
            if failed and part == "method":
                break
            if self._stop.wait(activity.pauses.after):
                break
        for thread in beside:
            thread.join(_JOIN_SECONDS)
        return failed[0] if failed else None

    def _one(self, activity: Activity, part: Part, failed: list[str]) -> None:
        at = time.perf_counter()
        output: Any = None
        problem: str | None = None
        try:
            output = perform(activity, self._foreign)
        except ActivityFailedError as error:
            problem = str(error)
            if isinstance(activity, Action):
                failed.append(f"the action {activity.name!r} failed: {problem}")
        step = Step(
            at,
            time.perf_counter() - at,
            part,
            activity.model_dump(mode="json", exclude_unset=True),
            succeeded=problem is None,
            output=_plain(output),
            problem=problem,
        )
        self._record.add(self._record.steps, step)


def _plain(value: Any) -> Any:
    """Return what JSON can hold of it."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | None) else str(value)
