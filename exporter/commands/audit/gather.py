"""Gathers the evidence of one server once, gently and within a deadline: reads, then asks."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final

from exporter import errors
from exporter.access.collector_base import Access
from exporter.access.inventory import Inventory
from exporter.catalogue.probe_outcomes import UNJUDGED
from exporter.commands.audit.audit_evidence import (
    MOST_TRACE_SETTINGS,
    NO_SERIES,
    NOT_CONFIGURED,
    READ_SERIES,
    Evidence,
    Page,
)
from exporter.commands.audit.model_seen import Answers
from exporter.config import connect
from exporter.features.discovery.server_collector import ServerSettings
from exporter.triton.metrics_page import lines_of, read_page

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from exporter.access.inventory import ModelKey
    from exporter.access.probe_base import Target, Verdict
    from exporter.commands.audit.audit_evidence import Labels, Part
    from exporter.config.configuration import Config
    from exporter.config.kinds import AnyProbe
    from exporter.triton.protocol_types import ModelStatistics

MOST_ROUNDS: Final = 20
"""Requests sent to one target, at most."""
TELLING_ROUNDS: Final = 3
"""Rounds without a success after which no further request is sent."""
LONGEST_LINGER_SECONDS: Final = 0.5
"""Longest wait for late answers: Triton reports a dead Python stub after one second,
just later than a probe's default timeout."""
_IDLE: Final = threading.Event()


@dataclass(frozen=True, slots=True)
class _Way:
    """A way to ask a model, and the verdicts so far."""

    settings: AnyProbe
    target: Target
    verdicts: list[Verdict]


def idle(seconds: float) -> None:
    """Wait."""
    _IDLE.wait(max(0.0, seconds))


def ask(
    probes: Sequence[AnyProbe],
    access: Access,
    requests: Mapping[ModelKey, int],
    *,
    deadline: float,
) -> tuple[tuple[Answers, ...], int]:
    """Send requests to all targets of the synthetic probes in rounds, within a deadline.

    Each probe's own ceiling of requests a second is kept to. `requests` are those that
    each model has served. Returns the answers by target, and the number of targets
    without a verdict.
    """
    ways = [
        _Way(settings, target, [])
        for settings in probes
        if settings.kind == "synthetic"
        for target in settings.build(access).targets(access.board.current)
    ]
    ways.sort(key=lambda way: (way.target.protocol, -requests.get(way.target.key, 0)))
    _ask_in_rounds(ways, access, deadline)
    answers = [Answers(way.target, tuple(way.verdicts)) for way in ways if way.verdicts]
    return tuple(answers), len(ways) - len(answers)


def _ask_in_rounds(ways: Sequence[_Way], access: Access, deadline: float) -> None:
    for number in range(MOST_ROUNDS):
        verdicts = [verdict for way in ways for verdict in way.verdicts]
        if number >= TELLING_ROUNDS and all(v.outcome != "ok" for v in verdicts):
            return  # nothing more to learn
        for way in ways:
            started = access.clock()
            if started >= deadline:
                return
            _attempt(way, access, deadline - started)
            slot = started + 1 / way.settings.max_requests_per_second
            idle(min(slot, deadline) - access.clock())


def _attempt(way: _Way, access: Access, left_seconds: float) -> None:
    wanted = way.settings
    settings = wanted.model_copy(
        update={
            "timeout_seconds": min(wanted.timeout_seconds, max(0.05, left_seconds)),
            "linger_seconds": min(wanted.linger_seconds, LONGEST_LINGER_SECONDS),
        }
    )
    verdict = settings.build(access).attempt(way.target)
    if verdict is None or verdict.outcome in _NOTHING:
        return
    was_cut_short = settings.timeout_seconds < wanted.timeout_seconds
    if not (was_cut_short and verdict.outcome == "timeout"):
        # One cut off by the end of the audit gives no information on the model.
        way.verdicts.append(verdict)


_NOTHING: Final = UNJUDGED - {"configuration"}
"""Outcomes of requests that show nothing, and need no remedy."""
SETUP_SHARE: Final = 0.25
"""Limit of the time for reading the inventory, as a share of the duration."""
WINDOW_END_SHARE: Final = 0.6
"""End of the window without own requests, as a share of the duration."""
PROBES_SHARE: Final = 0.35
"""Time for requests of our own, as a share of the duration."""
LONGEST_CALL_SECONDS: Final = 1.0
"""Models whose trace settings are read; the global ones always are."""
MOST_SERIES: Final = 100_000
ROUND_TRIPS: Final = 5


def gather(
    config: Config, duration_seconds: float, report_step: Callable[[str], None]
) -> Evidence:
    """Observe the target for `duration_seconds`, and a moment more.

    `report_step` gets one line for each step. Errors of the server are not raised.

    Raises:
        ConfigError: a TLS file of the target cannot be read.
    """
    server, http, metrics = connect.clients(config.target)
    access = Access.detached(
        server,
        http=http,
        metrics=metrics,
        models=config.models,
    )
    try:
        return _Gathering(config, access, duration_seconds).evidence(report_step)
    finally:
        access.close()


class _Gathering:
    def __init__(self, config: Config, access: Access, duration_seconds: float) -> None:
        self._config = config
        self._access = access
        self._duration = duration_seconds
        self._began = access.clock()
        self._problems: dict[Part, str] = {}

    def evidence(self, report_step: Callable[[str], None]) -> Evidence:
        """Every step in turn."""
        report_step(
            f"reading the state and the models of {self._config.target.address}"
        )
        http = self._http()
        try:
            network_seconds = self._round_trip()
        except errors.TritonError as error:
            return Evidence(no_answer=str(error), http=http)
        unreadable = self._inventory()
        inventory = self._access.board.current
        if not inventory.up:
            reason = f"it is live, but its state cannot be read in {LONGEST_CALL_SECONDS:g} s"
            return Evidence(no_answer=reason, http=http)
        trace_settings = self._trace_settings()
        first_page = self._page()
        first = self._statistics()
        window_began = self._now()
        left = max(0.0, self._duration * WINDOW_END_SHARE - self._now())
        report_step(
            f"{len(inventory.models)} models; watching production for {left:.0f} s"
        )
        idle(left)
        second = self._statistics()
        window_seconds = self._now() - window_began
        report_step("sending a tensor through each model")
        answers, not_asked = ask(
            self._config.all_probes(),
            self._access,
            {key: counted.success.count for key, counted in second.items()},
            deadline=self._access.clock() + self._duration * PROBES_SHARE,
        )
        last_page = self._page()
        seen = inventory.models.keys() | unreadable.keys()
        ready = {(e.name, e.version) for e in inventory.index if e.ready}
        return Evidence(
            inventory=inventory,
            http=http,
            network_seconds=network_seconds,
            window_seconds=window_seconds,
            problems=self._problems,
            unreadable=unreadable,
            unread=len(ready - seen),
            first=first,
            second=second,
            first_page=first_page,
            last_page=last_page,
            trace_settings=trace_settings,
            answers=answers,
            not_asked=not_asked,
        )

    def _now(self) -> float:
        return self._access.clock() - self._began

    def _patience(self) -> float:
        """Return the longest wait for one answer: a second, or the rest of the time."""
        return min(LONGEST_CALL_SECONDS, max(0.05, self._duration - self._now()))

    def _late(self) -> bool:
        """Return whether the time for reading the inventory is over."""
        return self._now() >= self._duration * SETUP_SHARE

    def _http(self) -> str:
        if self._access.http is None:
            self._problems["http"] = NOT_CONFIGURED
            return NOT_CONFIGURED
        try:
            self._access.http.get("/v2/health/ready", timeout_seconds=self._patience())
        except errors.TritonError as error:
            if str(error).startswith("HTTP 400"):
                return "not ready"  # Triton's word for it
            self._problems["http"] = str(error)
            return "no answer"
        return "ready"

    def _round_trip(self) -> float:
        """Median seconds of a call that does nothing, once there is a connection.

        Raises:
            TritonError: the server does not answer.
        """
        self._access.grpc.live(timeout_seconds=self._patience())
        taken = []
        for _ in range(ROUND_TRIPS):
            began = self._now()
            try:
                self._access.grpc.live(timeout_seconds=self._patience())
            except errors.TritonError:
                break
            taken.append(self._now() - began)
        return median(taken) if taken else math.nan

    def _inventory(self) -> dict[ModelKey, str]:
        """Fill the board; why listed models could not be read."""
        left = max(0.1, self._duration * SETUP_SHARE - self._now())
        access = self._access
        # The collector reads signatures within half of its deadline.
        collector = ServerSettings(
            timeout_seconds=self._patience(), deadline_seconds=2 * left
        ).build(access)
        try:
            collector.collect()
        except (errors.DeniedError, errors.PartialResultError):
            # It may be live, but does not list its models: nothing can be inspected.
            access.board.publish(Inventory())
        refused: dict[ModelKey, str] = {}
        current = access.board.current
        for entry in current.index:
            key = (entry.name, entry.version)
            if not entry.ready or key in current.models:
                continue
            if self._late():
                break
            try:
                access.grpc.model_spec(*key, timeout_seconds=self._patience())
            except errors.DeadlineError:
                continue  # No answer in time refuses nothing: it was not read.
            except errors.TritonError as error:
                refused[key] = str(error)
        return refused

    def _trace_settings(self) -> dict[str, dict[str, tuple[str, ...]]]:
        settings: dict[str, dict[str, tuple[str, ...]]] = {}
        models = sorted({name for name, _ in self._access.board.current.models})
        for name in ("", *models[:MOST_TRACE_SETTINGS]):
            if name and self._late():
                break
            try:
                settings[name] = self._access.grpc.trace_settings(
                    name, timeout_seconds=self._patience()
                )
            except errors.TritonError as error:
                self._problems["traces"] = str(error)
                break
        return settings

    def _statistics(self) -> dict[ModelKey, ModelStatistics]:
        if "statistics" in self._problems:
            return {}  # who did not answer once costs a full timeout each time
        try:
            entries = self._access.grpc.statistics(timeout_seconds=LONGEST_CALL_SECONDS)
        except errors.TritonError as error:
            self._problems["statistics"] = str(error)
            return {}
        return {
            (entry.name, entry.version): entry
            for entry in entries
            if self._access.models.matches(entry.name)
        }

    def _page(self) -> Page:
        client = self._access.metrics
        if client is None or "metrics" in self._problems:
            self._problems.setdefault("metrics", NOT_CONFIGURED)
            return Page()
        try:
            body = client.get("/metrics", timeout_seconds=LONGEST_CALL_SECONDS)
        except errors.TritonError as error:
            self._problems["metrics"] = f"{type(error).__name__}: {error}"
            return Page()
        if b"nv_" not in body:
            self._problems["metrics"] = NO_SERIES
            return Page()
        series: dict[str, dict[Labels, float]] = {}
        for name, labels, value in read_page(
            body, lines_of(READ_SERIES), most_series=MOST_SERIES
        ).series:
            series.setdefault(name, {})[tuple(sorted(labels.items()))] = value
        return Page(self._now(), series)
