"""The commands `tritonwatch load run` and `tritonwatch load list`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, TextIO, get_args

import numpy as np

from loadtests import result_file
from loadtests.announce import announced
from loadtests.engine import Options
from loadtests.execute import execute_watched, prepared
from loadtests.interrupt import interruptible
from loadtests.json_file import publish
from loadtests.profiles import AnyProfile
from loadtests.report import run_document
from loadtests.report.objective_report import exit_of
from loadtests.report.run_report import report_of
from loadtests.result import Outcome
from loadtests.scenario_options import check_outputs, scenario_of
from pages.units import duration

if TYPE_CHECKING:
    import argparse

    from loadtests.engine import Progress
    from loadtests.result import RunResult
    from loadtests.scenario import Scenario

_SECOND: Final = 1.0
_FEWEST_OF_P99: Final = 100


class Line:
    """Progress, one line a second; rewritten in place on a terminal."""

    def __init__(self, out: TextIO, scenario: Scenario) -> None:
        self._out = out
        self._length = scenario.profile.length_seconds
        self._terminal = out.isatty()
        self._said_at = 0.0
        self._ended = np.empty(0, np.int64)
        self._written = False

    def update(self, progress: Progress) -> None:
        """Write a line if a second has passed."""
        self._ended = np.concatenate((self._ended, progress.finished))
        passed = progress.elapsed_seconds - self._said_at
        if passed < _SECOND:
            return
        self._said_at = progress.elapsed_seconds
        ended, self._ended = self._ended, np.empty(0, np.int64)
        shown = self._line(progress, ended, passed)
        self._out.write(f"\r{shown:<79}" if self._terminal else f"{shown}\n")
        self._out.flush()
        self._written = True

    def end(self) -> None:
        """Leave the line."""
        if self._terminal and self._written:
            self._out.write("\n")

    def _line(
        self,
        progress: Progress,
        ended: np.ndarray[tuple[int], np.dtype[np.int64]],
        passed: float,
    ) -> str:
        requests = progress.requests
        chosen = requests.where(ended)
        timed = chosen.timed
        late = chosen.done[timed] - chosen.intended[timed]
        # Of few requests a p99 would be the slowest one.
        name, q = ("p99", 0.99) if late.size >= _FEWEST_OF_P99 else ("max", 1.0)
        tail = duration(float(np.quantile(late, q))) if late.size else "?"
        missed = len(chosen) - chosen.count(Outcome.OK)
        return (
            f"{progress.elapsed_seconds:5.0f} of {self._length:.0f} s"
            f"  {chosen.count(Outcome.OK) / passed:7.0f}/s"
            f"  {name} {tail}  in flight {progress.in_flight}  missed {missed}"
        )


def run(options: argparse.Namespace) -> int:
    """Execute one load run, announce it and write its result."""
    scenario = scenario_of(options)
    check_outputs(options.json)
    line = None if options.quiet else Line(sys.stderr, scenario)
    profile = scenario.profile
    with announced(options, "load", scenario.name, profile.kind, profile.phases()):
        result = _measured(scenario, line, strict=options.strict)
    written = "" if options.json is None else result_file.text(result)
    publish(options, run_document.document(report_of(result)), written)
    return exit_of(result)


def _measured(scenario: Scenario, line: Line | None, *, strict: bool) -> RunResult:
    progress = None if line is None else line.update
    with interruptible() as interrupted:
        mix = prepared(scenario)
        how = Options(progress=progress, stop=interrupted)
        result, _ = execute_watched(scenario, mix, how, strict=strict)
    if line is not None:
        line.end()
    return result


def list_profiles(_options: argparse.Namespace) -> int:
    """Print the profiles and their settings."""
    for member in get_args(get_args(AnyProfile)[0]):
        kind = member.model_fields["kind"].default
        sentence = (member.__doc__ or "").strip().partition("\n")[0]
        keys = ", ".join(sorted(member.model_fields.keys() - {"kind"}))
        sys.stdout.write(f"{kind:<10} {sentence}\n{'':<10} --set {keys}\n")
    return 0
