"""Runs experiments of ours inside Chaos Toolkit's own `chaos run`.

    controls:
      - {name: tritonwatch, provider: {type: python, module: loadtests.chaos.running.control}}

Brings up the target and the load before the first probe, and undoes whatever is in
effect after the last rollback; the watchdog does it where `chaos run` is killed. Its
journal is Chaos Toolkit's own: for recovery, detection and the rest take
`tritonwatch chaos run`. What TRITONWATCH_CHAOS_ALLOW names may be broken.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import time
from typing import TYPE_CHECKING, Any, Final

from exporter.errors import TritonwatchError
from loadtests.chaos import experiment
from loadtests.chaos.running.foreign import library, needed_by
from loadtests.chaos.running.repetition import Repetition, RunOptions
from loadtests.chaos.targets import require_allowed

if TYPE_CHECKING:
    from collections.abc import Mapping

ALLOW_VARIABLE: Final = "TRITONWATCH_CHAOS_ALLOW"
"""Targets, parted by commas."""

_standing: contextlib.ExitStack | None = None


def before_experiment_control(context: Mapping[str, Any], **_: Any) -> None:
    """Start what the experiment's extension needs, and let it run for a while.

    Raises:
        InterruptExecution: it does not come up, or may not be broken.
    """
    global _standing  # noqa: PLW0603 - Chaos Toolkit calls functions without a context
    stack = contextlib.ExitStack()
    try:
        loaded = experiment.parse(context, "chaos-toolkit")
        allowed = tuple(filter(None, os.environ.get(ALLOW_VARIABLE, "").split(",")))
        require_allowed(loaded.experiment.extension.target, allowed)
        options = RunOptions(allow=allowed)
        one = Repetition(loaded, options, needed_by(loaded), 0)
        stack.enter_context(one.standing())
        stack.callback(one.undo)
    except TritonwatchError as error:
        interrupt = library("exceptions", "a control").InterruptExecution
        raise interrupt(str(error)) from error
    _standing = stack
    # Chaos Toolkit interrupts by exceptions that it may not hand to its controls.
    atexit.register(_end)
    time.sleep(loaded.experiment.extension.timing.before_seconds)


def after_experiment_control(**_: Any) -> None:
    """Undo active faults, and end what was started."""
    _end()


def _end() -> None:
    global _standing
    stack, _standing = _standing, None
    if stack is not None:
        stack.close()
