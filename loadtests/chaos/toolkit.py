"""Actions and probes of experiments, written as Chaos Toolkit's python providers.

    provider: {type: python, module: loadtests.chaos.toolkit, func: availability,
               arguments: {window_seconds: 1.0}}

They act on the experiment that runs in this process, under `tritonwatch chaos run`.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from exporter.output.exposition import parse_text
from loadtests.chaos import faults
from loadtests.chaos.measuring.polling import fetch
from loadtests.errors import FaultFailedError, LoadError

if TYPE_CHECKING:
    from collections.abc import Generator

    from loadtests.chaos.running.repetition import Repetition


class NotRunningError(LoadError):
    """A function of this module was called outside of an experiment."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"found no {what} for {__name__}; run the experiment with "
            "`tritonwatch chaos run FILE`, with a target and a load in its extension"
        )


_running: Repetition | None = None


@contextlib.contextmanager
def during(run: Repetition) -> Generator[None]:
    """Make this the experiment of the functions while the block lasts."""
    global _running  # noqa: PLW0603 - experiments call functions without a context
    before, _running = _running, run
    try:
        yield
    finally:
        _running = before


def inject(fault: dict[str, Any]) -> dict[str, Any]:
    """Action: inject a fault; `kind` and its settings. Seen to be there on return.

    Raises:
        FaultRefusedError: it cannot be injected there; nothing was touched.
        FaultFailedError: it was not injected; a partial injection was undone.
    """
    run = _current()
    try:
        wanted = faults.parse(fault, "inject")
    except ValueError as error:
        raise FaultFailedError(str(error)) from None
    run.inject(wanted)
    return wanted.model_dump(mode="json")


def undo() -> list[str]:
    """Action: undo every fault of this run that is in effect.

    Raises:
        FaultFailedError: something is left.
    """
    left = _current().undo()
    if left:
        raise FaultFailedError(f"not undone: {'; '.join(left)}")
    return left


def availability(window_seconds: float = 1.0) -> float | None:
    """Probe: the share of correct answers in the last moment, from 0 to 1.

    None where no request was sent meanwhile.
    """
    return _current().live.availability(window_seconds)


def latency(quantile: float = 0.95, window_seconds: float = 1.0) -> float | None:
    """Probe: the quantile of latency in the last moment, in seconds.

    From when a request was due; one without a correct answer is as late as its timeout.
    """
    return _current().live.latency(quantile, window_seconds)


def metric(name: str, labels: dict[str, str] | None = None) -> float | None:
    """Probe: the largest value of a metric of the sidecar whose labels include these.

    None where the sidecar shows none.
    """
    site = _current().site
    if site is None or site.sidecar_url is None:
        raise NotRunningError("sidecar")
    page = fetch(site.sidecar_url.rpartition("//")[2], "/metrics") or b""
    wanted = (labels or {}).items()
    found = [
        value
        for series, given, value in parse_text(page)
        if series == name and wanted <= given.items()
    ]
    return max(found, default=None)


def _current() -> Repetition:
    if _running is None:
        raise NotRunningError("experiment")
    return _running
