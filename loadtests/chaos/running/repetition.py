"""One run of an experiment: load and checks throughout, undo always.

    before     load alone; the steady state has to hold at its end, or nothing is broken
    during     the method, in order; then the rollbacks, always; faults still in
               effect are undone after them; then load alone, while it recovers
    after      a last check: the steady state has to hold again

A limit that is crossed, a failed action and a signal end the method at once.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from exporter.errors import TritonwatchError
from loadtests.announce import AnnouncedRun
from loadtests.chaos import toolkit
from loadtests.chaos.experiment import fault_of
from loadtests.chaos.measuring.observations import Record
from loadtests.chaos.measuring.polling import AlertWatch, SidecarWatch, versions_of
from loadtests.chaos.primitives.process_refs import new_token
from loadtests.chaos.running.experiment_load import Load, with_right_answers
from loadtests.chaos.running.method import HypothesisChecks, LimitWatch, run_activities
from loadtests.chaos.targets.chaos_target import Surroundings, require_allowed
from loadtests.chaos.undoing.injection import injections
from loadtests.chaos.undoing.undo import residue
from loadtests.chaos.undoing.undo_journal import default_folder, new_scratch
from loadtests.errors import FaultFailedError
from loadtests.execute import prepared
from loadtests.interrupt import Interrupted, interrupted_once
from loadtests.profiles.profile import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from pathlib import Path

    from loadtests.chaos.experiment import Loaded, LoadSettings
    from loadtests.chaos.faults.fault import Fault
    from loadtests.chaos.measuring.observations import Evidence, Status
    from loadtests.chaos.running.experiment_load import LiveWindow
    from loadtests.chaos.site import Site
    from loadtests.chaos.undoing.injection import Injected, Injections

_BRING_UP_SECONDS: Final = 120.0
"""Time to start target, sidecar and the rest, for the watchdog's deadline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of a run, in addition to the experiment."""

    allow: Sequence[str] = ()
    """Targets that may be broken, in addition to the embedded one; shell-style patterns."""
    state: Path = field(default_factory=default_folder)
    """Folder of the undo journals."""
    sidecars: Sequence[str] = ()
    """URLs of taps that the run is announced to, in addition to the target's own sidecar."""
    progress: Callable[[str], None] = lambda _line: None
    """Called with a line at each step."""


class Repetition:
    """One execution, on which the functions of the toolkit act."""

    def __init__(self, loaded: Loaded, options: RunOptions, repetition: int) -> None:
        self._loaded = loaded
        self._experiment = loaded.experiment
        self._extension = loaded.experiment.extension
        self._options = options
        self._repetition = repetition
        self._record = Record()
        self._stop = threading.Event()
        self._why: str | None = None
        self._load: Load | None = None
        self._site: Site | None = None
        self._faults: Injections | None = None
        self._injected: list[Injected] = []
        self._undone: set[int] = set()
        self._status: Status = "completed"
        self._ended = 0.0
        self._breaking = False
        self._announced: AnnouncedRun | None = None

    @property
    def site(self) -> Site | None:
        """The deployment that is broken."""
        return self._site

    @property
    def live(self) -> LiveWindow:
        """Availability and latency of the last moment.

        Raises:
            NotRunningError: nothing is sent.
        """
        if self._load is None:
            raise toolkit.NotRunningError("load")
        return self._load.live

    def run(self) -> Evidence:
        """Run the repetition and return its evidence."""
        with interrupted_once():
            try:
                with self.standing():
                    self._go_through()
            except Interrupted as error:
                self._interrupted(error)
            except FaultFailedError as error:
                if self._faults is None:
                    raise
                # Remains are left; the evidence is reported nevertheless.
                self._record.problem(str(error))
        return self._evidence()

    @contextlib.contextmanager
    def standing(self) -> Generator[None]:
        """Target, load and watchers while a block lasts, and the undo at its end.

        Raises:
            FaultFailedError: there is no watchdog, or something could not be undone.
            LoadError, TritonwatchError: something does not come up.
        """
        name = f"{self._loaded.name}-{new_token()}"
        scratch = new_scratch()
        kept = injections(
            self._options.state,
            name,
            deadline_seconds=_BRING_UP_SECONDS + 2 * self._seconds(),
            scratch=str(scratch),
            target=self._extension.target.others,
        )
        try:
            with kept as faults, contextlib.ExitStack() as stack:
                self._faults = faults
                self._bring_up(stack, scratch, faults.token)
                # Before load and target end, which takes its time.
                stack.callback(self.undo)
                yield
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def inject(self, fault: Fault) -> None:
        """Break something, with a record of how to undo it."""
        assert self._faults is not None  # noqa: S101 - the run has begun
        if self._site is None:
            raise toolkit.NotRunningError("target")
        detail = fault.model_dump(mode="json")
        injected = self._faults.inject(fault, self._site)
        self._injected.append(injected)
        self._record.note("inject", detail, injected.at)
        self._record.note("injected", detail, injected.verified_at)
        self._options.progress(f"injected {injected.entry.kind}")

    def undo(self) -> list[str]:
        """Undo all active faults; return those that remain."""
        assert self._faults is not None  # noqa: S101 - the run has begun
        entries = self._faults.open()
        numbers = {entry.number for entry in entries}
        for one in self._injected:
            if one.entry.number not in numbers | self._undone:
                self._record.problem(
                    f"{one.entry.kind} was undone by another process, like "
                    "`chaos undo --force`"
                )
        if not entries:
            return []
        lapsed = {
            one.entry.number: one.lapsed()
            for one in self._injected
            # Nothing delays the undo where there is no result.
            if one.entry.number in numbers and self._status == "completed"
        }
        began = time.perf_counter()
        left = self._faults.revert_all()
        ended = time.perf_counter()
        still_open = {entry.number for entry in self._faults.open()}
        self._undone |= numbers - still_open
        undone = [entry.kind for entry in entries if entry.number not in still_open]
        for entry in entries:
            detail = {"kind": entry.kind, "lapsed": lapsed.get(entry.number, [])}
            self._record.note("revert", detail, began)
            if entry.number in self._undone:
                detail = {"kind": entry.kind, "left": left}
                self._record.note("reverted", detail, ended)
        if undone:
            self._options.progress(
                f"undone {', '.join(undone)} in {ended - began:.2f} s"
            )
        for problem in left:
            self._options.progress(f"LEFT {problem}")
        return left

    def _seconds(self) -> float:
        """Return the maximum duration of the load."""
        timing, method = self._extension.timing, self._experiment.method_seconds
        return timing.before_seconds + method + timing.after_seconds

    def _bring_up(self, stack: contextlib.ExitStack, scratch: Path, token: str) -> None:
        """Start target, load and watchers, which run through all phases."""
        extension, record = self._extension, self._record
        stack.enter_context(toolkit.during(self))
        detect = extension.detect
        around = Surroundings(
            scratch=scratch,
            token=token,
            note=record.note,
            seed=extension.seed,
            alerts=frozenset(one.alert for one in detect if one.alert),
            folder=self._loaded.folder,
        )
        self._options.progress(f"bringing up {extension.target.name} …")
        self._site = stack.enter_context(extension.target.opened(around))
        for fault in filter(None, map(fault_of, self._experiment.method)):
            fault.prepare(self._site)
        record.versions |= versions_of(self._site.http)
        if extension.load is not None:
            self._load = stack.enter_context(self._loading(extension.load, self._site))
        self._announce(stack)
        if self._site.sidecar_url is not None:
            self._options.progress(f"the sidecar's page is {self._site.sidecar_url}/")
            conditions = filter(None, (one.condition for one in detect))
            metrics = {condition.metric for condition in conditions}
            watch = SidecarWatch(self._site.sidecar_url, metrics, record)
            stack.enter_context(watch)
        if self._site.prometheus_url is not None:
            stack.enter_context(AlertWatch(self._site.prometheus_url, record))

    def _loading(self, load: LoadSettings, site: Site) -> Load:
        address = site.loaded(load.protocol)
        scenario = self._loaded.scenario(load, address, self._seconds())
        target = scenario.target.target()
        mix = with_right_answers(target, prepared(scenario), scenario.timeout_seconds)
        return Load(scenario, mix, load.backoff)

    def _announce(self, stack: contextlib.ExitStack) -> None:
        sidecars = list(self._options.sidecars)
        tap = None if self._site is None else self._site.tap
        if tap is not None:
            sidecars.append(f"http://{tap}")
        name = self._loaded.name
        run = AnnouncedRun("chaos", name[:100], name[:200], sidecars)
        self._announced = run
        stack.callback(self._record.remark, run.problems)
        phases = (Phase("before", 0.0, math.inf, None),)
        stack.enter_context(run.announced(phases))
        if self._load is not None:
            stack.callback(self._load.stop)  # before the end is announced

    def _enter(self, phase: str) -> None:
        if self._announced is not None:
            self._announced.enter(phase)

    def _go_through(self) -> None:
        timing, hypothesis = self._extension.timing, self._experiment.hypothesis
        with contextlib.ExitStack() as stack:
            checks: HypothesisChecks | None = None
            if hypothesis is not None:
                checks = HypothesisChecks(
                    hypothesis, timing.every_seconds, self._record
                )
                stack.enter_context(checks)
            for limit in self._extension.abort:
                stack.enter_context(LimitWatch(limit, self._record, self._abort))
            try:
                if self._steady(checks):
                    self._break()
            except Interrupted as error:
                self._interrupted(error)
            finally:
                self._undo()
            if self._status in {"completed", "failed"}:
                self._watch_after(checks)

    def _steady(self, checks: HypothesisChecks | None) -> bool:
        """Return True if the steady state holds before the first fault."""
        timing = self._extension.timing
        self._options.progress(f"steady state for {timing.before_seconds:g} s …")
        if self._load is not None:
            begun = time.perf_counter() - self._load.origin
            self._stop.wait(max(timing.before_seconds - begun, 0.0))
        found = [] if checks is None else checks.check()
        missed = [check for check in found if not check.met]
        for check in missed:
            self._record.problem(
                f"the steady state did not hold before the method: {check.probe} was "
                f"{check.value}; nothing was broken"
            )
        if missed:
            self._status = "failed"
        return not missed

    def _break(self) -> None:
        self._record.phase = "during"
        self._enter("during")
        self._breaking = True
        method = self._experiment.method
        problem = run_activities(method, "method", self._record, self._stop)
        self._breaking = False
        if self._why is not None:
            self._status = "aborted"
        elif problem is not None:
            self._status = "failed"
            self._record.problem(problem)

    def _undo(self) -> None:
        """Run the rollbacks and undo active faults; undo first if a limit was crossed."""
        self._breaking = False
        if self._status in {"aborted", "interrupted"}:
            self._record.leftovers += self.undo()
        self._stop.clear()
        # Nothing was broken where the method was not begun, and nothing is put back.
        if self._record.phase != "before":
            last = self._experiment.rollbacks
            problem = run_activities(last, "rollbacks", self._record, self._stop)
            if problem is not None:
                self._record.problem(problem)
        self._record.leftovers += self.undo()
        self._ended = time.perf_counter()

    def _watch_after(self, checks: HypothesisChecks | None) -> None:
        if self._record.phase == "before":
            return
        self._enter("after")
        seconds = self._extension.timing.after_seconds
        self._options.progress(f"recovery for {seconds:g} s …")
        try:
            if self._load is not None:
                self._stop.wait(seconds)
            # As in Chaos Toolkit, "after" is one check, after some time to recover.
            self._record.phase = "after"
            if checks is not None:
                checks.check()
        except Interrupted as error:
            self._interrupted(error)

    def _interrupted(self, error: Interrupted) -> None:
        self._record.note("interrupted", {"text": str(error)})
        self._status = "interrupted"

    def _abort(self, why: str) -> None:
        """End the method, when a limit is crossed."""
        if self._why is None and self._breaking:
            self._why = why
            self._record.note("abort", {"text": why})
            self._stop.set()

    def _evidence(self) -> Evidence:
        load = self._load
        for injected in self._injected:
            self._record.leftovers += residue(injected.entry)
        if load is not None and load.problem is not None:
            self._record.problem(f"the load ended early: {load.problem}")
        return self._record.evidence(
            self._loaded.document,
            origin=None if load is None else load.origin,
            status=self._status,
            load=None if load is None else load.result,
            repetition=self._repetition,
            ended=self._ended or time.perf_counter(),
        )


def run(loaded: Loaded, options: RunOptions) -> list[Evidence]:
    """Run every repetition of an experiment; return the evidence of each.

    The first that was interrupted, aborted or not wholly undone is the last; so is the one
    before the first that does not come up.

    Raises:
        NotAllowedError: its target may not be broken.
        JournalError: an earlier run has left faults, or another one breaks the target.
        FaultRefusedError: a fault cannot be injected there; nothing was touched.
        LoadError, TritonwatchError: the target or the load does not come up.
    """
    extension = loaded.experiment.extension
    require_allowed(loaded.experiment.touched, options.allow)
    found: list[Evidence] = []
    for repetition in range(extension.repetitions):
        try:
            found.append(Repetition(loaded, options, repetition).run())
        except TritonwatchError as error:
            if not found:
                raise
            which = f"{repetition + 1} of {extension.repetitions}"
            problem = f"repetition {which} did not run: {error}"
            problems = (*found[-1].problems, problem)
            found[-1] = found[-1].model_copy(update={"problems": problems})
            break
        if found[-1].status in {"interrupted", "aborted"} or found[-1].leftovers:
            break
    return found
