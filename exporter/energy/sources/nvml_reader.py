"""Reads NVIDIA boards through NVIDIA's own binding, nvidia-ml-py.

Energy comes from the total energy counter (millijoules since the driver was loaded, Volta
and later); where a board has none, from its power: the average over a second (field 185),
the instantaneous power (field 186), or nvmlDeviceGetPowerUsage, which is the one or the
other by generation. Under MIG all of these are the whole board's.

What a board does not support is asked once and then left alone until the library is
opened again. A board that is lost has its fault in its reading and costs the others
nothing; a driver that goes away is looked for again at every call.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pynvml
import structlog

from exporter import catalogue
from exporter.energy.readings import Device, Reading
from exporter.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from exporter.energy.readings import Fault
    from exporter.energy.sources.base import Surroundings
    from exporter.energy.sources.nvml import NvmlSettings
    from exporter.samples import AnySample

log = structlog.get_logger()
T = TypeVar("T")

_MOST_BOARDS: Final = 64
_MOST_XIDS: Final = 32
# Read every so many calls: ECC counters and limits change seldom and cost the driver most.
_SELDOM: Final = 10
_GONE: Final = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
)
_UNSUPPORTED: Final = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    }
)
# Times by policy: nvmlViolationTime_t is nanoseconds. The finer reasons have field ids
# that were moved between driver branches (251-253, then 269-271), so they are sampled.
_POLICIES: Final = {
    "power": pynvml.NVML_PERF_POLICY_POWER,
    "thermal": pynvml.NVML_PERF_POLICY_THERMAL,
    "sync_boost": pynvml.NVML_PERF_POLICY_SYNC_BOOST,
    "board_limit": pynvml.NVML_PERF_POLICY_BOARD_LIMIT,
    "low_utilization": pynvml.NVML_PERF_POLICY_LOW_UTILIZATION,
    "reliability": pynvml.NVML_PERF_POLICY_RELIABILITY,
}
_REASONS: Final = {
    "sw_power_cap": pynvml.nvmlClocksEventReasonSwPowerCap,
    "hw_slowdown": pynvml.nvmlClocksEventReasonHwSlowdown,
    "sw_thermal": pynvml.nvmlClocksEventReasonSwThermalSlowdown,
    "hw_thermal": pynvml.nvmlClocksEventReasonHwThermalSlowdown,
    "hw_power_brake": pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown,
}
_CLOCKS: Final = {"sm": pynvml.NVML_CLOCK_SM, "memory": pynvml.NVML_CLOCK_MEM}
_SEVERITIES: Final = {
    "corrected": pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED,
    "uncorrected": pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
}


class DriverGoneError(Exception):
    """The whole library no longer answers."""


@dataclass(slots=True)
class Board:
    """One board while the library is open, and what of it outlives that."""

    handle: Any
    index: int
    uuid: str
    name: str
    mig: str = "unknown"
    instances: tuple[str, ...] = ()
    limit_watts: float | None = None
    unsupported: set[str] = field(default_factory=set)
    throttled: dict[str, float] = field(default_factory=dict)
    """Seconds by reason since this process first read the board."""
    violations: dict[str, int] = field(default_factory=dict)
    """The driver's own counters at the last call, in nanoseconds."""
    ecc: dict[str, int] = field(default_factory=dict)
    xids: Counter[str] = field(default_factory=Counter)
    xid_seen: dict[str, float] = field(default_factory=dict)
    read_at: float | None = None

    def ask(self, what: str, call: Callable[..., T], *arguments: object) -> T | None:
        """What the board says, None if it does not or cannot.

        Raises:
            DriverGoneError: the library no longer answers at all.
            pynvml.NVMLError: the board is lost.
        """
        if what in self.unsupported:
            return None
        try:
            return call(self.handle, *arguments)
        except pynvml.NVMLError as error:
            code = error.value
            if code in _GONE:
                raise DriverGoneError(str(error)) from None
            if code not in _UNSUPPORTED:
                raise
            self.unsupported.add(what)
            return None


class NvmlPower:
    """Every board of this machine that the driver shows."""

    def __init__(self, settings: NvmlSettings, surroundings: Surroundings) -> None:
        self._settings = settings
        self._surroundings = surroundings
        self._boards: dict[str, Board] = {}
        self._events: Any = None
        self._driver = ""
        self._open = False
        self._calls = 0

    @classmethod
    def opened(
        cls, settings: NvmlSettings, surroundings: Surroundings
    ) -> NvmlPower | None:
        """With the library open; None where it cannot be opened or shows no board."""
        source = cls(settings, surroundings)
        try:
            source._initialise()
        except (pynvml.NVMLError, DriverGoneError) as error:
            log.info("nvml_unusable", reason=str(error))
            return None
        if source._boards:
            return source
        source.close()
        return None

    @property
    def kind(self) -> str:
        """As in the configuration."""
        return "nvml"

    @property
    def description(self) -> str:
        """For the log."""
        names = Counter(board.name for board in self._boards.values())
        boards = ", ".join(f"{count} x {name}" for name, count in names.items())
        return f"NVML, driver {self._driver or '?'}: {boards}"

    def read(self) -> Sequence[Reading]:
        """Every board once; those that are lost have their fault in their reading."""
        self._calls += 1
        try:
            if not self._open:
                self._initialise()
            self._take_events()
            return [self._reading(board) for board in self._boards.values()]
        except (DriverGoneError, pynvml.NVMLError) as error:
            if self._open:
                log.warning("nvml_gone", reason=str(error))
            self.close()
            return [
                self._faulty(board, "driver_gone") for board in self._boards.values()
            ]

    def close(self) -> None:
        """Shut the library down; `read` opens it again."""
        if self._open:
            self._open, self._events = False, None
            try:
                pynvml.nvmlShutdown()
            except pynvml.NVMLError as error:
                log.debug("nvml_shutdown", reason=str(error))

    def _initialise(self) -> None:
        pynvml.nvmlInit()
        self._open = True
        self._driver = str(pynvml.nvmlSystemGetDriverVersion())
        found = {}
        for index in range(min(pynvml.nvmlDeviceGetCount(), _MOST_BOARDS)):
            board = self._board(index)
            if board is not None:
                found[board.uuid] = board
        # A board that did not come back stays in the list, as lost.
        for uuid, board in self._boards.items():
            found.setdefault(uuid, board)
        self._boards = found
        self._listen()

    def _board(self, index: int) -> Board | None:
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            uuid = str(pynvml.nvmlDeviceGetUUID(handle))
            name = str(pynvml.nvmlDeviceGetName(handle))
        except pynvml.NVMLError as error:
            if error.value in _GONE:
                raise DriverGoneError(str(error)) from None
            log.warning("gpu_not_shown", gpu=index, reason=str(error))
            return None
        board = Board(handle, index, uuid, name)
        known = self._boards.get(uuid)
        if known is not None:
            board.throttled, board.xids = known.throttled, known.xids
            board.xid_seen = known.xid_seen
        modes = self._asked(board, "mig", pynvml.nvmlDeviceGetMigMode)
        board.mig = "unknown" if modes is None else ("on" if modes[0] else "off")
        if board.mig == "on":
            board.instances = tuple(_instances(board))
        return board

    def _asked(self, board: Board, what: str, call: Callable[..., T]) -> T | None:
        """As `Board.ask`, where a board that is lost just does not tell."""
        try:
            return board.ask(what, call)
        except pynvml.NVMLError:
            return None

    def _listen(self) -> None:
        try:
            self._events = pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError:
            self._events = None
            return
        for board in self._boards.values():
            self._asked(
                board,
                "events",
                lambda handle: pynvml.nvmlDeviceRegisterEvents(
                    handle, pynvml.nvmlEventTypeXidCriticalError, self._events
                ),
            )

    def _take_events(self) -> None:
        if self._events is None:
            return
        by_handle = {_address(b.handle): b for b in self._boards.values()}
        for _ in range(_MOST_XIDS):
            try:
                event = pynvml.nvmlEventSetWait(self._events, 0)
            except pynvml.NVMLError as error:
                if error.value in _GONE:
                    raise DriverGoneError(str(error)) from None
                return
            board = by_handle.get(_address(event.device))
            if board is not None and event.eventType & (
                pynvml.nvmlEventTypeXidCriticalError
            ):
                xid = str(event.eventData)
                if xid in board.xids or len(board.xids) < _MOST_XIDS:
                    board.xids[xid] += 1
                    board.xid_seen[xid] = self._surroundings.wall_clock()

    def _reading(self, board: Board) -> Reading:
        at = self._surroundings.clock()
        try:
            return self._whole_reading(board, at)
        except pynvml.NVMLError as error:
            log.debug("gpu_lost", gpu=board.index, reason=str(error))
            return self._faulty(board, "lost")

    def _faulty(self, board: Board, fault: Fault) -> Reading:
        board.read_at = None
        return Reading(
            self._device(board),
            self._surroundings.clock(),
            faults=frozenset({fault}),
            samples=list(_xids(board, self._labels(board))),
        )

    def _whole_reading(self, board: Board, at: float) -> Reading:
        millijoules = board.ask("energy", pynvml.nvmlDeviceGetTotalEnergyConsumption)
        instant, average = _powers(board)
        if self._calls % _SELDOM == 1 or board.limit_watts is None:
            limit = board.ask("limit", pynvml.nvmlDeviceGetEnforcedPowerLimit)
            board.limit_watts = limit / 1000 if limit else None
            self._count_ecc(board)
        used = board.ask("utilization", pynvml.nvmlDeviceGetUtilizationRates)
        utilization = None if used is None else used.gpu / 100
        self._count_throttling(board, at)
        board.read_at = at
        return Reading(
            self._device(board),
            at,
            None if millijoules is None else millijoules * 1000,
            power_watts=instant if instant is not None else average,
            average_watts=average,
            utilization_ratio=utilization,
            samples=list(self._samples(board, utilization)),
        )

    def _device(self, board: Board) -> Device:
        return Device(
            "gpu",
            self._settings.kind,
            board.uuid,
            index=str(board.index),
            name=board.name,
            idle_watts=self._settings.idle_watts,
            max_watts=board.limit_watts,
            instances=board.instances,
        )

    def _count_throttling(self, board: Board, at: float) -> None:
        throttled = board.throttled
        for reason, policy in _POLICIES.items():
            found = board.ask(
                f"violation {reason}", pynvml.nvmlDeviceGetViolationStatus, policy
            )
            if found is None:
                continue
            now = int(found.violationTime)
            rise = now - board.violations.get(reason, now)
            board.violations[reason] = now
            # One that fell was reset with the driver; what it says is since then.
            risen = (rise if rise >= 0 else now) / 1e9
            throttled[reason] = throttled.get(reason, 0.0) + risen
        bits = board.ask("reasons", pynvml.nvmlDeviceGetCurrentClocksEventReasons)
        if bits is None:
            return
        elapsed = 0.0 if board.read_at is None else at - board.read_at
        for reason, bit in _REASONS.items():
            held = elapsed if bits & bit else 0.0
            throttled[reason] = throttled.get(reason, 0.0) + held

    def _count_ecc(self, board: Board) -> None:
        for severity, kind in _SEVERITIES.items():
            count = board.ask(
                "ecc",
                pynvml.nvmlDeviceGetTotalEccErrors,
                kind,
                pynvml.NVML_VOLATILE_ECC,
            )
            if count is not None:
                board.ecc[severity] = int(count)

    def _labels(self, board: Board) -> tuple[str, str, str, str]:
        return str(board.index), board.uuid, board.name, self._settings.kind

    def _samples(self, board: Board, utilization: float | None) -> Iterator[AnySample]:
        labels = self._labels(board)
        counted = "energy" not in board.unsupported
        reading = "counter" if counted else "integrated_average"
        if not counted and "average" in board.unsupported:
            reading = "integrated_instant"
        yield Sample(catalogue.GPU_INFO, 1, (*labels, self._driver, board.mig, reading))
        if board.limit_watts is not None:
            yield Sample(catalogue.GPU_POWER_LIMIT, board.limit_watts, labels)
        if utilization is not None:
            yield Sample(catalogue.GPU_UTILIZATION, utilization, labels)
        memory = board.ask("memory", pynvml.nvmlDeviceGetMemoryInfo)
        if memory is not None:
            yield Sample(catalogue.GPU_MEMORY_USED, int(memory.used), labels)
            yield Sample(catalogue.GPU_MEMORY_TOTAL, int(memory.total), labels)
        celsius = board.ask(
            "temperature", pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU
        )
        if celsius is not None:
            yield Sample(catalogue.GPU_TEMPERATURE, celsius, labels)
        for domain, clock in _CLOCKS.items():
            mhz = board.ask(f"clock {domain}", pynvml.nvmlDeviceGetClockInfo, clock)
            if mhz is not None:
                yield Sample(catalogue.GPU_CLOCK, mhz * 1e6, (*labels, domain))
        for reason, seconds in board.throttled.items():
            yield Sample(catalogue.GPU_THROTTLE, seconds, (*labels, reason))
        for severity, count in board.ecc.items():
            yield Sample(catalogue.GPU_ECC, count, (*labels, severity))
        yield from _xids(board, labels)


def _xids(board: Board, labels: tuple[str, ...]) -> Iterator[AnySample]:
    for xid, count in board.xids.items():
        yield Sample(catalogue.GPU_XID, count, (*labels, xid))
        yield Sample(catalogue.GPU_XID_TIMESTAMP, board.xid_seen[xid], (*labels, xid))


def _powers(board: Board) -> tuple[float | None, float | None]:
    """Instantaneous and average power in watts."""
    fields = [pynvml.NVML_FI_DEV_POWER_INSTANT, pynvml.NVML_FI_DEV_POWER_AVERAGE]
    values = board.ask("power fields", pynvml.nvmlDeviceGetFieldValues, fields)
    instant, average = (None, None) if values is None else map(_watts, values)
    if average is None:
        board.unsupported.add("average")
    if instant is None:
        milliwatts = board.ask("power", pynvml.nvmlDeviceGetPowerUsage)
        instant = None if milliwatts is None else milliwatts / 1000
    return instant, average


def _watts(value: Any) -> float | None:
    """A field of milliwatts, which has a status of its own."""
    if value.nvmlReturn != pynvml.NVML_SUCCESS:
        return None
    if value.valueType == pynvml.NVML_VALUE_TYPE_UNSIGNED_INT:
        return float(value.value.uiVal) / 1000
    if value.valueType == pynvml.NVML_VALUE_TYPE_DOUBLE:
        return float(value.value.dVal) / 1000
    return float(value.value.ullVal) / 1000


def _instances(board: Board) -> Iterator[str]:
    count = board.ask("mig count", pynvml.nvmlDeviceGetMaxMigDeviceCount) or 0
    for place in range(count):
        try:
            handle = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(board.handle, place)
            yield str(pynvml.nvmlDeviceGetUUID(handle))
        except pynvml.NVMLError:
            # An empty slot.
            continue


def _address(handle: Any) -> int | None:
    """What makes two handles the same board."""
    return ctypes.cast(handle, ctypes.c_void_p).value
