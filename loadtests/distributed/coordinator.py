"""The Locust master: one schedule for all workers, and one result from them."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from exporter.histograms.histogram import Histogram
from loadtests.announce import AnnouncedRun
from loadtests.errors import EXIT_INVALID
from loadtests.plan import MAX_REQUESTS
from loadtests.report.objective_report import exit_of
from loadtests.result import About, Requests, RunResult, Unanswered, Verdict
from loadtests.result_file import unpacked
from loadtests.scenario import ClosedLoop, to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from loadtests.scenario import Scenario

_LEAD_SECONDS: Final = 0.5
"""Time from the start command to the start: it has to reach every worker."""
_READY_SECONDS: Final = 120.0
_OVERTIME_SECONDS: Final = 15.0
log = logging.getLogger("tritonwatch")


@dataclass(slots=True)
class Share:
    """State of one worker."""

    ready: bool = False
    lost: bool = False
    failed: str = ""
    done: Mapping[str, Any] | None = None
    ended: int = 0
    """Its requests that have ended."""

    @property
    def over(self) -> bool:
        """Return whether no more is expected of it."""
        return self.lost or bool(self.failed) or self.done is not None


class Coordinator:
    """One run over all workers; `send(what, content, worker)` reaches a worker."""

    def __init__(
        self,
        scenario: Scenario,
        workers: Sequence[str],
        send: Callable[[str, dict[str, Any], str], None],
        sidecars: Sequence[str] = (),
    ) -> None:
        self.scenario = scenario
        self.shares = {worker: Share() for worker in workers}
        self.started_at: float | None = None
        self._send = send
        self._asked_at = time.monotonic()
        self._over_since: float | None = None
        self._parts: list[Requests] = []
        self._dropped = 0
        self._described: Mapping[str, Any] = {}
        """Entries of the mix, and versions and hardware of one of the workers."""
        self._closing = contextlib.ExitStack()
        self._announced = AnnouncedRun(
            "load", scenario.name, scenario.profile.kind, sidecars
        )

    def prepare(self) -> None:
        """Let every worker prepare its requests."""
        for worker in self.shares:
            self._send("prepare", {"scenario": to_json(self.scenario)}, worker)

    def receive(self, what: str, content: Mapping[str, Any]) -> None:
        """Handle a worker's report that it is ready, done, or has failed."""
        share = self.shares.get(content["worker"])
        if share is None or share.over:
            return  # it joined later, or was given up
        if "news" in content:
            self.count(content["worker"], content["news"])
        match what:
            case "ready":
                share.ready = True
                self._described = content["described"]
                if self._complete:
                    self._start()
            case "done":
                share.done = content
            case "failed":
                share.failed = str(content["message"])
                log.error("worker %s: %s", content["worker"], share.failed)

    def count(self, worker: str, news: Mapping[str, Any]) -> None:
        """Add the requests that ended since the worker's last report."""
        share = self.shares.get(worker)
        if share is None:
            return
        requests = unpacked(news)
        share.ended += len(requests)
        if sum(map(len, self._parts)) + len(requests) > MAX_REQUESTS:
            self._dropped += len(requests)
        else:
            self._parts.append(requests)

    def check_workers(self, alive: Sequence[str]) -> None:
        """Give up workers that have disappeared."""
        for worker, share in self.shares.items():
            if worker not in alive and not share.over:
                share.lost = True
                log.error(
                    "worker %s was lost after %d of its requests had ended; its "
                    "later requests are unknown",
                    worker,
                    share.ended,
                )
        if self.started_at is None and any(s.ready for s in self.shares.values()):
            late = time.monotonic() - self._asked_at > _READY_SECONDS
            if late or self._complete:
                self._start()

    @property
    def _complete(self) -> bool:
        return all(share.ready or share.over for share in self.shares.values())

    def over(self, quiet_seconds: float) -> bool:
        """Return whether all workers have reported, and Locust's reports are in."""
        now = time.monotonic()
        if not (all(share.over for share in self.shares.values()) or self._overdue()):
            return False
        self._over_since = now if self._over_since is None else self._over_since
        return now - self._over_since >= quiet_seconds

    def _overdue(self) -> bool:
        if self.started_at is None:
            return time.monotonic() - self._asked_at > _READY_SECONDS
        if isinstance(self.scenario.profile, ClosedLoop):
            return False
        length = self.scenario.profile.length_seconds + self.scenario.timeout_seconds
        return time.time() > self.started_at + length + _OVERTIME_SECONDS

    def _start(self) -> None:
        if self.started_at is not None:
            return
        ready = [worker for worker, share in self.shares.items() if share.ready]
        self.started_at = time.time() + _LEAD_SECONDS
        for place, worker in enumerate(ready):
            order = {"starts_in_seconds": self.started_at - time.time()}
            order |= {"worker": place, "workers": len(ready)}
            self._send("start", order, worker)
        phases = self.scenario.profile.phases()
        self._closing.enter_context(self._announced.announced(phases))

    def close(self) -> None:
        """Announce that the run is over."""
        self._closing.close()
        for problem in self._announced.problems:
            log.warning("%s", problem)

    def result(self) -> RunResult:
        """Return the result of all workers together."""
        scenario, known = self.scenario, self._described
        closed = isinstance(scenario.profile, ClosedLoop)
        requests = Requests.joined(self._parts)
        requests = requests.where(np.argsort(requests.intended, kind="stable"))
        done = [share.done for share in self.shares.values() if share.done is not None]
        last = float(np.nanmax(requests.done, initial=0.0))
        longest = max([last, *(one["duration_seconds"] for one in done)])
        between, errors = Histogram(), Counter[str]()
        for one in done:
            between.merge(Histogram.from_state(one["between_responses"]))
            errors.update(one["errors"])
        return RunResult.of(
            About(
                mode="closed" if closed else "open",
                protocol=scenario.target.protocol,
                address=scenario.target.target().address,
                entries=tuple(
                    known.get("entries") or (m.model for m in scenario.models)
                ),
                seed=scenario.seed,
                timeout_seconds=scenario.timeout_seconds,
                in_flight=sum(one["in_flight"] for one in done),
                payload_sha256=known.get("payload_sha256", ""),
                started_at=self.started_at or time.time(),
                # A closed loop ends when Locust's users leave.
                schedule_seconds=None if closed else scenario.profile.length_seconds,
                profile=scenario.profile.model_dump(mode="json"),
                versions=known.get("versions", {}),
                hardware=known.get("hardware", {}),
                workers=len(self.shares),
                slo=scenario.slo or "",
            ),
            requests,
            between_responses=between,
            duration_seconds=longest or scenario.profile.length_seconds,
            sender_cpu_seconds=sum(one["sender_cpu_seconds"] for one in done),
            errors=errors,
            unanswered=_together([Unanswered(**one["unanswered"]) for one in done]),
            verdict=Verdict(
                tuple(self._reasons()),
                tuple(dict.fromkeys(note for one in done for note in one["warnings"])),
            ),
        )

    def _reasons(self) -> list[str]:
        """Return the reasons against the numbers."""
        found: list[str] = []
        for worker, share in self.shares.items():
            if share.lost:
                found.append(
                    f"worker {worker} was lost after {share.ended} of its requests"
                )
            elif share.failed:
                found.append(f"worker {worker}: {share.failed}")
            elif share.done is None:
                found.append(f"worker {worker} gave no result")
            else:
                found += [f"worker {worker}: {r}" for r in share.done["reasons"]]
        if self._dropped:
            found.append(
                f"{self._dropped} requests are left out, more than the {MAX_REQUESTS} "
                "that a result keeps; make it shorter"
            )
        return found


def status_of(result: RunResult) -> int | None:
    """Return the exit status as that of `load run`; None leaves it to Locust."""
    if not result.verdict.valid:
        return EXIT_INVALID
    return exit_of(result) if result.about.slo else None


def _together(parts: Sequence[Unanswered]) -> Unanswered:
    firsts, lasts = (
        [at for part in parts if (at := getattr(part, name)) is not None]
        for name in ("first_seconds", "last_seconds")
    )
    return Unanswered(
        count=sum(part.count for part in parts),
        first_seconds=min(firsts, default=None),
        last_seconds=max(lasts, default=None),
        waited_seconds=sum(part.waited_seconds for part in parts),
    )
