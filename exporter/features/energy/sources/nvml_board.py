"""One NVIDIA board: calls of NVML, and their values in base units.

Times of throttling by policy are the driver's own (nvmlViolationTime_t, nanoseconds). The
finer reasons have field ids that were moved between driver branches (251 to 253, then 269
to 271), so they are sampled.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pynvml

from exporter import catalogue
from exporter.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from exporter.samples import AnySample

T = TypeVar("T")

GONE: Final = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
)
_LOST: Final = frozenset(
    {
        pynvml.NVML_ERROR_GPU_IS_LOST,
        pynvml.NVML_ERROR_RESET_REQUIRED,
        pynvml.NVML_ERROR_GPU_NOT_FOUND,
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
    """One board while the library is open, and the state that outlives that."""

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
    xid_seen: dict[str, float] = field(default_factory=dict)
    """Time of the latest XID error by its number."""
    read_at: float | None = None

    def call(
        self, what: str, function: Callable[..., T], *arguments: object
    ) -> T | None:
        """Call NVML for this board; return None where it is not supported or has no value.

        Raises:
            DriverGoneError: the library no longer answers at all.
            pynvml.NVMLError: the board is lost.
        """
        if what in self.unsupported:
            return None
        try:
            return function(self.handle, *arguments)
        except pynvml.NVMLError as error:
            code = code_of(error)
            if code in GONE:
                raise DriverGoneError(str(error)) from None
            if code in _LOST:
                raise
            if code in _UNSUPPORTED:
                self.unsupported.add(what)
            return None

    def powers(self) -> tuple[float | None, float | None]:
        """Instantaneous and average power in watts; raises as `call` does."""
        fields = [pynvml.NVML_FI_DEV_POWER_INSTANT, pynvml.NVML_FI_DEV_POWER_AVERAGE]
        values = self.call("power fields", pynvml.nvmlDeviceGetFieldValues, fields)
        instant, average = (None, None) if values is None else map(_watts, values)
        if average is None:
            self.unsupported.add("average")
        if instant is None:
            milliwatts = self.call("power", pynvml.nvmlDeviceGetPowerUsage)
            instant = None if milliwatts is None else milliwatts / 1000
        return instant, average

    def count_throttling(self, at: float) -> None:
        """Record how long the clocks were throttled until now, and the reasons.

        Raises:
            DriverGoneError, pynvml.NVMLError: see `call`.
        """
        throttled = self.throttled
        for reason, policy in _POLICIES.items():
            found = self.call(
                f"violation {reason}", pynvml.nvmlDeviceGetViolationStatus, policy
            )
            if found is None:
                continue
            now = int(found.violationTime)
            rise = now - self.violations.get(reason, now)
            self.violations[reason] = now
            # A counter that fell was reset with the driver, and counts since then.
            risen = (rise if rise >= 0 else now) / 1e9
            throttled[reason] = throttled.get(reason, 0.0) + risen
        bits = self.call("reasons", pynvml.nvmlDeviceGetCurrentClocksEventReasons)
        if bits is None:
            return
        elapsed = 0.0 if self.read_at is None else at - self.read_at
        for reason, bit in _REASONS.items():
            held = elapsed if bits & bit else 0.0
            throttled[reason] = throttled.get(reason, 0.0) + held

    def count_ecc(self) -> None:
        """Record the ECC errors; raises as `call` does."""
        for severity, kind in _SEVERITIES.items():
            count = self.call(
                "ecc",
                pynvml.nvmlDeviceGetTotalEccErrors,
                kind,
                pynvml.NVML_VOLATILE_ECC,
            )
            if count is not None:
                self.ecc[severity] = int(count)

    def mig_instances(self) -> Iterator[str]:
        """Uuids of its MIG instances."""
        count = self.call("mig count", pynvml.nvmlDeviceGetMaxMigDeviceCount) or 0
        for place in range(count):
            try:
                handle = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(self.handle, place)
                yield str(pynvml.nvmlDeviceGetUUID(handle))
            except pynvml.NVMLError:
                # An empty slot.
                continue

    def samples(
        self, labels: tuple[str, ...], driver: str, utilization: float | None
    ) -> Iterator[AnySample]:
        """Return all samples but power and energy, with these labels; raises as `call` does."""
        counted = "energy" not in self.unsupported
        reading = "counter" if counted else "integrated_average"
        if not counted and "average" in self.unsupported:
            reading = "integrated_instant"
        yield Sample(catalogue.GPU_INFO, 1, (*labels, driver, self.mig, reading))
        if self.limit_watts is not None:
            yield Sample(catalogue.GPU_POWER_LIMIT, self.limit_watts, labels)
        if utilization is not None:
            yield Sample(catalogue.GPU_UTILIZATION, utilization, labels)
        memory = self.call("memory", pynvml.nvmlDeviceGetMemoryInfo)
        if memory is not None:
            yield Sample(catalogue.GPU_MEMORY_USED, int(memory.used), labels)
            yield Sample(catalogue.GPU_MEMORY_TOTAL, int(memory.total), labels)
        celsius = self.call(
            "temperature", pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU
        )
        if celsius is not None:
            yield Sample(catalogue.GPU_TEMPERATURE, celsius, labels)
        for domain, clock in _CLOCKS.items():
            mhz = self.call(f"clock {domain}", pynvml.nvmlDeviceGetClockInfo, clock)
            if mhz is not None:
                yield Sample(catalogue.GPU_CLOCK, mhz * 1e6, (*labels, domain))
        for reason, seconds in self.throttled.items():
            yield Sample(catalogue.GPU_THROTTLE, seconds, (*labels, reason))
        for severity, count in self.ecc.items():
            yield Sample(catalogue.GPU_ECC, count, (*labels, severity))
        yield from self.xid_samples(labels)

    def xid_samples(self, labels: tuple[str, ...]) -> Iterator[AnySample]:
        """Yield its XID errors, also when the board can no longer be read."""
        for xid, seen_at in self.xid_seen.items():
            yield Sample(catalogue.GPU_XID_TIMESTAMP, seen_at, (*labels, xid))


def code_of(error: pynvml.NVMLError) -> int:
    """The return code; the binding sets it where no type checker sees it."""
    return int(vars(error)["value"])


def address(handle: Any) -> int | None:
    """Return the address in a handle; handles of one board have the same."""
    return ctypes.cast(handle, ctypes.c_void_p).value


def _watts(value: Any) -> float | None:
    """A field of milliwatts, which has a status of its own."""
    if value.nvmlReturn != pynvml.NVML_SUCCESS:
        return None
    if value.valueType == pynvml.NVML_VALUE_TYPE_UNSIGNED_INT:
        return float(value.value.uiVal) / 1000
    if value.valueType == pynvml.NVML_VALUE_TYPE_DOUBLE:
        return float(value.value.dVal) / 1000
    return float(value.value.ullVal) / 1000
