"""Reads NVIDIA boards through NVIDIA's own binding, nvidia-ml-py.

Energy comes from the total energy counter (millijoules since the driver was loaded, Volta
and later); where a board has none, from its power: the average over a second (field 185),
the instantaneous power (field 186), or nvmlDeviceGetPowerUsage, which is the one or the
other by generation. Under MIG all of these are the whole board's.

Unsupported calls are tried once and then skipped until the library is opened again. A lost
board has its fault in its reading and does not affect the others. While the driver is
unreachable, each read tries to open it again.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pynvml
import structlog

from exporter.features.energy.sources.nvml_board import (
    GONE,
    Board,
    DriverGoneError,
    address,
    code_of,
)
from exporter.features.energy.sources.power_source import Device, Reading

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from exporter.features.energy.sources.nvml import NvmlSettings
    from exporter.features.energy.sources.power_source import Fault, Surroundings

log = structlog.get_logger()
T = TypeVar("T")

_MOST_BOARDS: Final = 64
_MOST_XIDS: Final = 32
# Calls between reads: ECC counters and limits rarely change and are the slowest to read.
_SELDOM: Final = 10
# Calls between attempts to reopen the library while a board cannot be read.
_REOPEN: Final = 60


class NvmlPower:
    """Every board of this machine that the driver shows."""

    kind = "nvml"

    def __init__(self, settings: NvmlSettings, surroundings: Surroundings) -> None:
        self._idle_watts = settings.idle_watts
        self._chosen = frozenset(settings.boards)
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
        """Open the library; return None if that fails or it has no board."""
        source = cls(settings, surroundings)
        try:
            source._initialise()
        except (pynvml.NVMLError, DriverGoneError) as error:
            log.info("nvml_unusable", reason=str(error))
            return None
        names = {n for b in source._boards.values() for n in (b.uuid, str(b.index))}
        if unknown := source._chosen - names:
            log.warning("gpu_unknown", boards=sorted(unknown), setting="boards")
        if source._boards:
            return source
        source.close()
        return None

    @property
    def description(self) -> str:
        """Description for the log."""
        names = Counter(board.name for board in self._boards.values())
        boards = ", ".join(f"{count} x {name}" for name, count in names.items())
        return f"NVML, driver {self._driver or '?'}: {boards}"

    def read(self) -> Sequence[Reading]:
        """Every board once; those that are lost have their fault in their reading."""
        self._calls += 1
        try:
            if self._calls % _REOPEN == 0 and any(
                board.read_at is None for board in self._boards.values()
            ):
                # After a reset a board has to be looked up again.
                self.close()
            if not self._open:
                self._initialise()
            self._read_events()
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
            if uuid not in found:
                board.handle = None
                found[uuid] = board
        self._boards = found
        self._listen()

    def _board(self, index: int) -> Board | None:
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            uuid = str(pynvml.nvmlDeviceGetUUID(handle))
            name = str(pynvml.nvmlDeviceGetName(handle))
        except pynvml.NVMLError as error:
            if code_of(error) in GONE:
                raise DriverGoneError(str(error)) from None
            log.warning("gpu_not_shown", gpu=index, reason=str(error))
            return None
        if self._chosen and self._chosen.isdisjoint((uuid, str(index))):
            return None
        board = Board(handle, index, uuid, name)
        known = self._boards.get(uuid)
        if known is not None:
            board.throttled, board.xid_seen = known.throttled, known.xid_seen
        modes = self._call(board, "mig", pynvml.nvmlDeviceGetMigMode)
        board.mig = "unknown" if modes is None else ("on" if modes[0] else "off")
        if board.mig == "on":
            board.instances = tuple(board.mig_instances())
        return board

    def _call(self, board: Board, what: str, function: Callable[..., T]) -> T | None:
        """Call `Board.call`; None also for a board that is lost."""
        try:
            return board.call(what, function)
        except pynvml.NVMLError:
            return None

    def _listen(self) -> None:
        try:
            self._events = pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError:
            self._events = None
            return
        for board in self._boards.values():
            if board.handle is None:
                continue
            self._call(
                board,
                "events",
                lambda handle: pynvml.nvmlDeviceRegisterEvents(
                    handle, pynvml.nvmlEventTypeXidCriticalError, self._events
                ),
            )

    def _read_events(self) -> None:
        if self._events is None:
            return
        by_handle = {
            address(b.handle): b for b in self._boards.values() if b.handle is not None
        }
        for _ in range(_MOST_XIDS):
            try:
                event: Any = pynvml.nvmlEventSetWait(self._events, 0)
            except pynvml.NVMLError as error:
                if code_of(error) in GONE:
                    raise DriverGoneError(str(error)) from None
                return
            board = by_handle.get(address(event.device))
            if board is not None and event.eventType & (
                pynvml.nvmlEventTypeXidCriticalError
            ):
                xid = str(event.eventData)
                if xid in board.xid_seen or len(board.xid_seen) < _MOST_XIDS:
                    board.xid_seen[xid] = self._surroundings.wall_clock()

    def _reading(self, board: Board) -> Reading:
        at = self._surroundings.clock()
        if board.handle is None:
            return self._faulty(board, "lost")
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
            samples=list(board.xid_samples(self._labels(board))),
        )

    def _whole_reading(self, board: Board, at: float) -> Reading:
        millijoules = board.call("energy", pynvml.nvmlDeviceGetTotalEnergyConsumption)
        instant, average = board.powers()
        if millijoules is None and instant is None and average is None:
            return self._faulty(board, "unreadable")
        if self._calls % _SELDOM == 1 or board.limit_watts is None:
            limit = board.call("limit", pynvml.nvmlDeviceGetEnforcedPowerLimit)
            board.limit_watts = limit / 1000 if limit else None
            board.count_ecc()
        used: Any = board.call("utilization", pynvml.nvmlDeviceGetUtilizationRates)
        utilization = None if used is None else used.gpu / 100
        board.count_throttling(at)
        board.read_at = at
        return Reading(
            self._device(board),
            at,
            None if millijoules is None else millijoules * 1000,
            power_watts=instant if instant is not None else average,
            average_watts=average,
            utilization_ratio=utilization,
            samples=list(board.samples(self._labels(board), self._driver, utilization)),
        )

    def _device(self, board: Board) -> Device:
        return Device(
            "gpu",
            self.kind,
            board.uuid,
            index=str(board.index),
            name=board.name,
            idle_watts=self._idle_watts,
            max_watts=board.limit_watts,
            instances=board.instances,
        )

    def _labels(self, board: Board) -> tuple[str, str, str, str]:
        return str(board.index), board.uuid, board.name, self.kind
