"""The books: energy of every device divided over windows, and totals that never fall."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal, get_args

import numpy as np

from exporter.access.work_board import ModelWork
from exporter.features.energy import power_fit
from exporter.features.energy.attribution import MICRO, BusyPower, UnusedPower, divide
from exporter.features.energy.energy_meter import Meter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from exporter.access.inventory import ModelKey
    from exporter.access.work_board import WorkSnapshot
    from exporter.features.energy.placement import Placement
    from exporter.features.energy.sources.power_source import Device, Reading

Method = Literal["busy_time", "busy_time_with_idle"]
Reason = Literal["own_requests", "nothing_ran", "other_load", "no_statistics", "gap"]

# Windows in which models were busy for less than this are quiet enough to learn from.
_QUIET_RATIO: Final = 0.01
# After this time without statistics the energy since then is unattributed.
_SILENT_WINDOWS: Final = 6
_SILENT_READS: Final = 3
_NEW: Final = ModelWork(0.0, 0.0, 0, output_tokens=0.0)
"""Work of a model that was not there before."""


@dataclass(slots=True)
class Totals:
    """Microjoules since the start; the parts add up to `board` exactly."""

    board: int = 0
    idle: int = 0
    # All of them from the start: a counter's first step is no increase to PromQL.
    unattributed: dict[Reason, int] = field(
        default_factory=lambda: dict.fromkeys(get_args(Reason), 0)
    )
    models: dict[tuple[ModelKey, Method], int] = field(
        default_factory=lambda: defaultdict(int)
    )
    instances: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Energy by MIG instance, a part of `models`."""


@dataclass(frozen=True, slots=True)
class Busy:
    """Busy seconds of one model version on one device in one window."""

    seconds: float
    own_ratio: float
    """Part of it that was for our own requests."""
    instance: str = ""


@dataclass(frozen=True, slots=True)
class Window:
    """Energy of one device's window, in microjoules; `known` if all was measured."""

    seconds: float
    known: bool
    board: int
    idle: int
    models: Mapping[ModelKey, int]
    """Energy of production only."""
    busy: Mapping[ModelKey, float]
    """Busy seconds for production."""


@dataclass(frozen=True, slots=True)
class Settled:
    """A window of all devices, and the models' work in it."""

    until: float
    """Monotonic seconds at which it ended."""
    seconds: float
    inferences: Mapping[ModelKey, int]
    """Inferences of production."""
    busy: Mapping[ModelKey, float]
    """Busy seconds for production, on any device."""
    parts: tuple[tuple[Device, Window], ...]
    output_tokens: Mapping[ModelKey, float] = field(default_factory=dict)
    """Production's; of models of which they are known."""


@dataclass(frozen=True, slots=True)
class _Unlearnt:
    """A window whose power is not read at all delays yet."""

    start: float
    until: float
    busy: Mapping[ModelKey, float]
    """Busy seconds."""


class DeviceAccount:
    """One device: its meter, its power estimates, and its totals."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.meter = Meter()
        self.idle = UnusedPower(device.idle_watts)
        self.power: BusyPower[ModelKey] = BusyPower()
        self.totals = Totals()
        self._foreign = False
        """True if the device was busy with anything since the latest window began."""
        self._from: float | None = None
        self._unlearnt: deque[_Unlearnt] = deque()

    def add(self, reading: Reading) -> None:
        """Add a reading."""
        self.device = reading.device
        self.meter.add(reading)
        if self._from is None:
            self._from = reading.at
            self.meter.settle(reading.at)
        # Somebody else's work on the board is no idleness.
        if reading.utilization_ratio is not None:
            self._foreign |= reading.utilization_ratio > _QUIET_RATIO

    def skip(self, until: float) -> None:
        """Count all energy until then as unattributed: busy times are not known."""
        if self._from is None or until < self._from:
            return
        energy, _, _ = self._settle_meter(until, keep_from=until)
        self._book_late()
        self.totals.board += energy
        self.totals.unattributed["no_statistics"] += energy
        self._from = until
        self._foreign = False

    def settle(self, until: float, busy: Mapping[ModelKey, Busy]) -> Window | None:
        """Divide the energy until then among the models that were `busy`.

        The energy is that which the sensor shows until `lag_seconds` later.
        """
        if self._from is None or until <= self._from:
            return None
        start, self._from = self._from, until
        energy, seconds, known = self._settle_meter(
            until + self.lag_seconds, keep_from=start
        )
        self._book_late()
        whole = sum(item.seconds for item in busy.values())
        unused = known and whole <= _QUIET_RATIO * seconds
        quiet = unused and not self._foreign
        self._foreign = False
        if unused and seconds > 0:
            self.idle.learn(energy, seconds, quiet=quiet)
        else:
            self.idle.skip(whole, until - start)
        used = {key: item.seconds for key, item in busy.items() if item.seconds > 0}
        complete = known and math.isclose(seconds, until - start)
        shares = divide(
            energy,
            seconds,
            {key: value * self.power.watts(key) for key, value in used.items()},
            busy_seconds=whole,
            idle_watts=self._idle_watts,
            max_watts=self.device.max_watts,
            others_watts=self.power.others_watts,
            trusted_ratio=self.power.trusted_ratio(
                {key: value / seconds for key, value in used.items()}
            )
            if complete
            else 1.0,
        )
        models = self._book(energy, shares.idle, shares.models, busy)
        left: Reason = "other_load" if shares.models else "nothing_ran"
        self.totals.unattributed[left] += shares.unattributed
        # Other load on a board whose idle power is configured is not its baseline.
        if used or (quiet and self.device.idle_watts is None):
            self._unlearnt.append(_Unlearnt(start, until, used))
        self._learn()
        production = {k: b.seconds * (1 - b.own_ratio) for k, b in busy.items()}
        return Window(until - start, known, energy, shares.idle, models, production)

    @property
    def lag_seconds(self) -> float:
        """Return the delay of the energy readings after the models' work, in seconds."""
        return self.power.lag_seconds or 0.0

    @property
    def _idle_watts(self) -> float | None:
        """Idle power, corrected by the fit of windows in which models ran."""
        idle = self.idle.watts
        return None if idle is None else max(0.0, idle + self.power.baseline_watts)

    def _settle_meter(
        self, until: float, *, keep_from: float
    ) -> tuple[int, float, bool]:
        """Microjoules up to then, in how many seconds, and whether all are known."""
        start = self.meter.settled_until
        # A lag that became shorter may leave nothing to take.
        until = max(until, start)
        if self._unlearnt:
            keep_from = self._unlearnt[0].start
        energy, known = self.meter.settle(until, keep_from=keep_from)
        return energy, until - start, known

    def _learn(self) -> None:
        """Learn from the windows whose energy is read at all delays by now."""
        read_until = self.meter.read_until or 0.0
        delays = power_fit.DELAYS.tolist()
        while (
            self._unlearnt
            and self._unlearnt[0].until + power_fit.MOST_LAG_SECONDS <= read_until
        ):
            window = self._unlearnt.popleft()
            joules = [
                self.meter.between(window.start + delay, window.until + delay)
                for delay in delays
            ]
            if None not in joules:
                self.power.learn(
                    np.array(joules, dtype=np.float64) / MICRO,
                    window.until - window.start,
                    window.busy,
                    self.idle.watts,
                    others=self.idle.others,
                    smear=np.array(
                        [self.meter.smear(window.until + d) for d in delays]
                    ),
                    until=window.until,
                )
                if self.power.others_are_gone:
                    self.idle.forget_others()

    def _book(
        self,
        energy: int,
        idle: int,
        shares: Mapping[ModelKey, int],
        busy: Mapping[ModelKey, Busy],
    ) -> dict[ModelKey, int]:
        """Add a window to the totals; production's part of each share."""
        totals = self.totals
        method: Method = (
            "busy_time_with_idle" if self.idle.watts is None else "busy_time"
        )
        totals.board += energy
        totals.idle += idle
        models: dict[ModelKey, int] = {}
        for key, share in shares.items():
            own = int(share * busy[key].own_ratio)
            models[key] = share - own
            totals.unattributed["own_requests"] += own
            totals.models[key, method] += share - own
            if busy[key].instance:
                totals.instances[busy[key].instance] += share - own
        return models

    def _book_late(self) -> None:
        late = self.meter.pop_late()
        self.totals.board += late
        if late:
            self.totals.unattributed["gap"] += late


class Books:
    """All devices, settled together whenever the models' statistics were read."""

    def __init__(self, window_seconds: float) -> None:
        self._window_seconds = window_seconds
        self.devices: dict[tuple[str, str, str], DeviceAccount] = {}
        self._snapshot: WorkSnapshot | None = None
        self._next: WorkSnapshot | None = None
        """Ends the window, once the sensors showed the power until then."""
        self._read_at: deque[float] = deque(maxlen=3)
        """Monotonic seconds of the latest reads of the statistics."""
        self.skipped_until = 0.0
        """Monotonic seconds until which all energy is unattributed."""

    def add(self, reading: Reading) -> None:
        """Add one device's reading."""
        labels = reading.device.labels
        if labels not in self.devices:
            self.devices[labels] = DeviceAccount(reading.device)
        self.devices[labels].add(reading)

    def settle(
        self, snapshot: WorkSnapshot | None, placement: Placement, now: float
    ) -> Settled | None:
        """Close a window if a later reading of the statistics is covered by the meters."""
        before = self._snapshot
        if snapshot is not None and snapshot.at not in self._read_at:
            self._read_at.append(snapshot.at)
        if snapshot is not None and before is not None and snapshot.since > before.at:
            before = self._snapshot = self._next = None
        if snapshot is None or before is None:
            fresh = snapshot is not None and snapshot.at > self.skipped_until
            if snapshot is not None and fresh and self._measured(snapshot.at):
                self._skip(snapshot.at)
                self._snapshot = snapshot
            elif not fresh:
                self._silent(now)
            return None
        if self._next is None and snapshot.at - before.at >= self._window_seconds:
            self._next = snapshot
        if self._next is None or not self._measured(self._next.at):
            self._silent(now)
            return None
        snapshot, self._next = self._next, None
        work = _work_between(before, snapshot)
        windows = []
        for account in self.devices.values():
            busy = {
                key: Busy(seconds * share, own_ratio, instance)
                for key, (seconds, own_ratio, _) in work.items()
                for share, instance in (placement.share(key, account.device),)
                if share > 0
            }
            window = account.settle(snapshot.at, busy)
            if window is not None:
                windows.append((account.device, window))
        self._snapshot = snapshot
        return Settled(
            snapshot.at,
            snapshot.at - before.at,
            {key: count for key, (_, _, count) in work.items()},
            {key: seconds * (1 - own) for key, (seconds, own, _) in work.items()},
            tuple(windows),
            _tokens_between(before, snapshot),
        )

    def _measured(self, at: float) -> bool:
        """Return whether every device was read since its sensor showed that instant."""
        accounts = self.devices.values()
        return bool(accounts) and all(
            a.meter.read_until is not None and a.meter.read_until >= at + a.lag_seconds
            for a in accounts
        )

    def _silent(self, now: float) -> None:
        """Settle without busy times, long after the latest read of the statistics."""
        last = self._snapshot.at if self._snapshot is not None else None
        silence = _SILENT_WINDOWS * self._window_seconds
        # The shorter of two intervals: one of them may be an outage.
        between = min((b - a for a, b in pairwise(self._read_at)), default=0.0)
        silence = max(silence, _SILENT_READS * between)
        if last is None or now - last > silence:
            self._skip(now - (silence if last is None else 0.0))
            if last is not None:
                self._snapshot = self._next = None

    def _skip(self, until: float) -> None:
        self.skipped_until = max(self.skipped_until, until)
        for account in self.devices.values():
            latest = account.meter.read_until
            if latest is not None:
                account.skip(min(until, latest))


def _tokens_between(before: WorkSnapshot, after: WorkSnapshot) -> dict[ModelKey, float]:
    tokens = {}
    for key, now in after.models.items():
        known = before.models.get(key, _NEW).output_tokens
        # A source that appears late counts requests of earlier windows as well.
        if now.output_tokens is not None and known is not None:
            tokens[key] = max(0.0, now.output_tokens - known)
    return tokens


def _work_between(
    before: WorkSnapshot, after: WorkSnapshot
) -> dict[ModelKey, tuple[float, float, int]]:
    """Busy seconds, our own part of them, and production inferences, by model.

    Models that execute something: the energy of an ensemble is that of its steps.
    """
    work = {}
    for key, now in after.models.items():
        if now.is_ensemble:
            continue
        then = before.models.get(key, _NEW)
        busy = now.busy_seconds - then.busy_seconds
        production = now.production_busy_seconds - then.production_busy_seconds
        inferences = now.inferences - then.inferences
        if busy > 0:
            own = max(0.0, 1 - production / busy)
            work[key] = busy, own, max(0, inferences)
        elif inferences > 0:
            # Booked as production's only now; their busy time was seen before.
            work[key] = 0.0, 0.0, inferences
    return work
