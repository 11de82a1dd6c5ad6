"""The sidecar's wall clock jumps, forward or back, while it runs.

Its own alone: setting the machine's clock would move it under the experiment's feet,
and a time namespace does not cover it. The monotonic clock goes on, as in a real step.
"""

from __future__ import annotations

import os
import platform
import signal
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, field_validator

from loadtests.chaos.faults.base import Fault, FaultFailedError, FaultRefusedError
from loadtests.chaos.faults.needs import sidecar_of
from loadtests.chaos.primitives import vdso
from loadtests.chaos.primitives.processes import ProcessRef
from loadtests.chaos.primitives.vdso import Patch

if TYPE_CHECKING:
    from loadtests.chaos.site import Site

_ALTERNATIVE = (
    "start the sidecar under faketime (its LD_PRELOAD), and change its offset there"
)


class ClockJump(Fault):
    """What the sidecar dates is wrong by so much; what it times is right."""

    strength: ClassVar[str | None] = "seconds"

    kind: Literal["clock_jump"] = "clock_jump"
    seconds: int = Field(default=3600, ge=-(10**9), le=10**9)
    """By how much; below zero into the past."""

    @field_validator("seconds")
    @classmethod
    def _moves(cls, seconds: int) -> int:
        if seconds == 0:
            raise ValueError(
                "found 0, which is no jump; want seconds below or above it"
            )
        return seconds

    def require(self, site: Site) -> None:
        """A sidecar whose memory may be written to, on a machine that is understood."""
        sidecar = sidecar_of(site)
        if platform.machine() != vdso.MACHINE:
            raise FaultRefusedError(
                f"clocks are moved on {vdso.MACHINE}, and this is {platform.machine()}",
                _ALTERNATIVE,
            )
        if not vdso.writable():
            raise FaultRefusedError(
                "this kernel does not let a process's vDSO be written to", _ALTERNATIVE
            )
        self._patches(sidecar)

    def prepare(self, site: Site) -> dict[str, Any]:
        """The process, and the bytes before and after."""
        sidecar = sidecar_of(site)
        found = self._patches(sidecar)
        return {
            "sidecar": sidecar.to_record(),
            "patches": [patch.to_record() for patch in found],
        }

    def inject(self, record: dict[str, Any]) -> None:
        """Move it."""
        sidecar = ProcessRef.from_record(record["sidecar"])
        if not sidecar.alive:
            raise FaultFailedError(f"sidecar {sidecar.pid} has ended")
        _write(sidecar, [(patch, patch.after) for patch in _patches(record)])

    def missing(self, record: dict[str, Any]) -> list[str]:
        """Functions that tell the right time."""
        sidecar = ProcessRef.from_record(record["sidecar"])
        if not sidecar.alive:
            return [f"sidecar {sidecar.pid} has ended"]
        return [
            f"the clock at {patch.address:#x} of process {sidecar.pid} is right"
            for patch in _patches(record)
            if not vdso.has(sidecar, patch, patch.after)
        ]

    @classmethod
    def revert(cls, record: dict[str, Any]) -> None:
        """Give it the right time, and let it go on where `inject` had stopped it."""
        sidecar = ProcessRef.from_record(record["sidecar"])
        wrong = _wrong(record)
        if wrong:
            _write(sidecar, [(patch, patch.before) for patch in wrong])
        sidecar.send(signal.SIGCONT)

    @classmethod
    def residue(cls, record: dict[str, Any]) -> list[str]:
        """Functions that tell the wrong time, and a sidecar that is stopped."""
        sidecar = ProcessRef.from_record(record["sidecar"])
        left = [
            f"the clock at {patch.address:#x} of process {sidecar.pid} is wrong; "
            "restart it"
            for patch in _wrong(record)
        ]
        if sidecar.state in {"T", "t"}:
            left.append(f"process {sidecar.pid} is stopped; kill -CONT {sidecar.pid}")
        return left

    def _patches(self, sidecar: ProcessRef) -> list[Patch]:
        try:
            return vdso.patches(sidecar, self.seconds)
        except vdso.VdsoError as error:
            raise FaultRefusedError(str(error), _ALTERNATIVE) from None


def _patches(record: dict[str, Any]) -> list[Patch]:
    return [Patch.from_record(entry) for entry in record["patches"]]


def _wrong(record: dict[str, Any]) -> list[Patch]:
    sidecar = ProcessRef.from_record(record["sidecar"])
    try:
        return [
            patch
            for patch in _patches(record)
            if sidecar.alive and not vdso.has(sidecar, patch, patch.before)
        ]
    except ProcessLookupError:
        return []


def _write(sidecar: ProcessRef, writes: list[tuple[Patch, bytes]]) -> None:
    try:
        with (
            vdso.memory(sidecar, os.O_RDWR) as descriptor,
            vdso.held(sidecar, [patch for patch, _ in writes]),
        ):
            for patch, data in writes:
                os.pwrite(descriptor, data, patch.address)
    except ProcessLookupError:
        return
    except (OSError, vdso.VdsoError) as error:
        raise FaultFailedError(
            f"the clock of process {sidecar.pid} could not be moved: {error}"
        ) from None
