"""Turns readings of the sources into accounts, and accounts into samples."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from exporter import catalogue
from exporter.errors import TritonError
from exporter.features.energy.attribution import MICRO
from exporter.features.energy.energy_accounts import Books
from exporter.features.energy.energy_derived import MOST_ERROR, Derived, share_errors
from exporter.features.energy.placement import PlacementReader
from exporter.features.energy.sources.power_source import Reading
from exporter.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from exporter.access.collector_base import Access
    from exporter.access.inventory import ModelKey
    from exporter.features.energy.energy_accounts import DeviceAccount
    from exporter.features.energy.energy_settings import EnergySettings
    from exporter.features.energy.placement import Placement
    from exporter.features.energy.sources.power_source import Fault, PowerSource
    from exporter.samples import AnySample


class Ledger:
    """All energy accounts, once there is a source."""

    def __init__(self, settings: EnergySettings, access: Access) -> None:
        self._access = access
        self._books = Books(settings.window_seconds)
        self._placements = PlacementReader(
            access.metrics, settings.timeout_seconds, settings.model_gpus
        )
        self._derived = Derived(
            settings.cost, settings.rate_window_seconds, access.clock
        )
        self._latest: dict[tuple[str, str, str], Reading] = {}
        self._placed_at: float | None = None
        self._window_seconds = settings.window_seconds
        self._until: tuple[int, float] | None = None
        """Number of devices, and monotonic seconds until which nothing is divided."""
        self._divided: list[AnySample] = []

    def advance(self, sources: Iterable[PowerSource]) -> Sequence[AnySample]:
        """Read the sources, close a window where one is due, and return all samples."""
        for source in sources:
            for reading in self._read(source):
                self._latest[reading.device.labels] = reading
                self._books.add(reading)
        now = self._access.clock()
        settled = self._books.settle(
            self._access.work.current, self._placement(now), now
        )
        devices = self._books.devices
        until = len(devices), self._books.skipped_until
        changed = self._derived.expire() or settled is not None or until != self._until
        if settled is not None:
            self._derived.add(settled)
        elif until != self._until:
            # Boards are paid for while the server is down, too.
            self._derived.pay(sum(boundary == "gpu" for boundary, _, _ in devices))
        self._until = until
        if changed:
            # The division changes only at the end of a window.
            self._divided = list(self._divided_samples())
        return [*self._device_samples(), *self._divided]

    def _read(self, source: PowerSource) -> Iterable[Reading]:
        fault: Fault = "lost"
        readings: Sequence[Reading] = ()
        try:
            readings = source.read()
        except TritonError:
            fault = "unreadable"
        # Devices that have disappeared are reported as missing.
        shown = {reading.device.labels for reading in readings}
        now = self._access.clock()
        return [
            *readings,
            *(
                Reading(reading.device, now, faults=frozenset({fault}))
                for labels, reading in self._latest.items()
                if reading.device.source == source.kind and labels not in shown
            ),
        ]

    def _placement(self, now: float) -> Placement:
        devices = [a.device for a in self._books.devices.values()]
        boards = [d for d in devices if d.boundary == "gpu"]
        due = self._placed_at is None or now - self._placed_at >= self._window_seconds
        ask = bool(boards) and due
        if ask:
            self._placed_at = now
        models = self._access.board.current.models
        return self._placements.read(boards, models, ask=ask)

    def _device_samples(self) -> Iterator[AnySample]:
        for labels, account in self._books.devices.items():
            yield from self._latest[labels].samples
            yield from _device_samples(account)

    def _divided_samples(self) -> Iterator[AnySample]:
        yield from _balance(self._books.devices.values())
        accounts = list(self._books.devices.values())
        for labels, (ratio, windows) in share_errors(accounts).items():
            yield Sample(catalogue.MODEL_ENERGY_ERROR, min(ratio, MOST_ERROR), labels)
            yield Sample(catalogue.MODEL_ENERGY_EFFECTIVE, windows, labels)
        yield from self._derived.samples(accounts)


def _device_samples(account: DeviceAccount) -> Iterator[AnySample]:
    device, meter = account.device, account.meter
    board = account.totals.board / MICRO
    if device.boundary == "gpu":
        labels = (device.index, device.key, device.name, device.source)
        yield Sample(catalogue.GPU_ENERGY, board, labels)
        if meter.power_watts is not None:
            yield Sample(catalogue.GPU_POWER, meter.power_watts, labels)
    else:
        place = (device.key, device.source)
        yield Sample(catalogue.HOST_ENERGY, board, place)
        watts = meter.power_watts or meter.mean_watts
        if watts is not None:
            yield Sample(catalogue.HOST_POWER, watts, place)
    yield Sample(catalogue.SENSOR_UP, not meter.faults, device.labels)
    for fault in sorted(meter.faults):
        yield Sample(catalogue.SENSOR_FAULT, 1, (*device.labels, fault))
    yield Sample(catalogue.SENSOR_RESETS, meter.resets, device.labels)
    yield Sample(catalogue.SENSOR_GAP, meter.gap_seconds, device.labels)
    idle = account.idle.watts
    if idle is not None:
        yield Sample(catalogue.IDLE_POWER, idle, device.labels)
    if account.power.lag_seconds is not None:
        lag = account.power.lag_seconds
        yield Sample(catalogue.SENSOR_LAG, lag, device.labels)
    for uuid, energy in account.totals.instances.items():
        yield Sample(
            catalogue.MIG_ENERGY, energy / MICRO, (uuid, device.key, device.source)
        )


def _balance(accounts: Iterable[DeviceAccount]) -> Iterator[AnySample]:
    """The parts, which add up to the boards of their boundary and source."""
    idle: dict[tuple[str, str], int] = defaultdict(int)
    unattributed: dict[tuple[str, str, str], int] = defaultdict(int)
    models: dict[tuple[ModelKey, str, str, str], int] = defaultdict(int)
    for account in accounts:
        place: tuple[str, str] = (account.device.boundary, account.device.source)
        idle[place] += account.totals.idle
        for reason, energy in account.totals.unattributed.items():
            unattributed[*place, reason] += energy
        for (key, method), energy in account.totals.models.items():
            models[key, *place, method] += energy
    for place, energy in idle.items():
        yield Sample(catalogue.IDLE_ENERGY, energy / MICRO, place)
    for labels, energy in unattributed.items():
        yield Sample(catalogue.UNATTRIBUTED_ENERGY, energy / MICRO, labels)
    for (key, *rest), energy in models.items():
        yield Sample(catalogue.MODEL_ENERGY, energy / MICRO, (*key, *rest))
