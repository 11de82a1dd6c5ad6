"""A scripted NVML for machines without a GPU, below the real Python binding.

`build` compiles fake_nvml.c into a `libnvidia-ml.so.1`; nvidia-ml-py loads it by ctypes as
it would NVIDIA's, when its folder is on LD_LIBRARY_PATH or it was `load`ed before. What it
says stands in a file that may be replaced at any time:

    script = NvmlScript(folder / "script", {0: board(watts=300)})
    script.change(0, lost=GPU_IS_LOST)

It stands in for nothing of timing: calls cost microseconds where a driver may take more.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from waiting import patience

if TYPE_CHECKING:
    from collections.abc import Mapping

SOURCE: Final = Path(__file__).with_name("fake_nvml.c")
LIBRARY: Final = "libnvidia-ml.so.1"
SCRIPT_VARIABLE: Final = "FAKE_NVML_SCRIPT"
GPU_IS_LOST: Final = 15
NOT_AVAILABLE: Final = "na"

Fields = dict[str, object]


def compiler() -> str | None:
    """A C compiler of this machine, None where there is none."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def build(folder: Path) -> Path:
    """The library, compiled into `folder`.

    Raises:
        OSError: there is no compiler.
        subprocess.CalledProcessError: it does not compile.
    """
    path = folder / LIBRARY
    command = compiler()
    if command is None:
        raise FileNotFoundError("found no C compiler: apt-get install gcc libc6-dev")
    subprocess.run(
        [
            command,
            *("-shared", "-fPIC", "-O2", "-Wall"),
            f"-Wl,-soname,{LIBRARY}",
            *("-o", str(path), str(SOURCE), "-lpthread"),
        ],
        check=True,
        capture_output=True,
        timeout=patience(60),
    )
    return path


def load(library: Path, script: Path) -> None:
    """Make this process's `libnvidia-ml.so.1` the fake, saying what the script says."""
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL).fake_nvml_use(
        str(script).encode()
    )


def is_loaded() -> bool:
    """Return True if this process loaded the fake, which stays until it ends."""
    return hasattr(ctypes.CDLL(None), "fake_nvml_use")


def board(number: int = 0, **fields: object) -> Fields:
    """A healthy board with everything; `fields` change or, if None, take away.

    `watts` makes its energy counter rise with the clock; `energy` (millijoules) sets it.
    """
    watts = fields.get("watts", 300)
    milliwatts = int(watts if isinstance(watts, int) else 300) * 1000
    known: Fields = {
        "uuid": f"GPU-{number:08d}-0000-0000-0000-000000000000",
        "name": "NVIDIA H100 80GB HBM3",
        "watts": watts,
        "power": milliwatts,
        "field.185": milliwatts,
        "field.186": milliwatts,
        "limit": 700_000,
        "utilization": 40,
        "memory_total": 85_899_345_920,
        "memory_used": 10_737_418_240,
        "temperature": 55,
        "clock.1": 1755,
        "clock.2": 2619,
        "reasons": 0,
        "violation.0": 0,
        "violation.1": 0,
        "violation.2": 0,
        "violation.3": 0,
        "violation.4": 0,
        "violation.5": 0,
        "ecc.0": 0,
        "ecc.1": 0,
        "mig": 0,
        "events": 1,
    }
    known.update(fields)
    return {name: value for name, value in known.items() if value is not None}


class NvmlScript:
    """The file the library reads."""

    def __init__(self, path: Path, boards: Mapping[int, Fields]) -> None:
        self.path = path
        self._boards = {number: dict(fields) for number, fields in boards.items()}
        self._driver: object = "550.54.15"
        self._epoch = 0
        self._events: list[tuple[int, int]] = []
        self._write()

    def change(self, number: int, **fields: Any) -> None:
        """Set fields of a board; None takes one away. `a__b` stands for "a.b"."""
        of_board = self._boards[number]
        for name, value in fields.items():
            key = name.replace("__", ".")
            of_board.pop(key, None)
            if value is not None:
                of_board[key] = value
        self._write()

    def unload_driver(self) -> None:
        """The driver goes away; every call fails."""
        self._driver = "gone"
        self._write()

    def load_driver(self, version: str = "550.54.15") -> None:
        """It comes back, and knows no process that used it before."""
        self._driver = version
        self._epoch += 1
        self._write()

    def xid(self, number: int, xid: int) -> None:
        """A critical XID error of a board."""
        self._events.append((number, xid))
        self._write()

    def _write(self) -> None:
        lines = [f"driver {self._driver}", f"epoch {self._epoch}"]
        lines.append(f"count {len(self._boards)}")
        for number, fields in self._boards.items():
            lines += [f"{number}.{name} {value}" for name, value in fields.items()]
        for place, (number, xid) in enumerate(self._events, start=1):
            lines.append(f"event.{place} {number} {xid}")
        # Replaced whole: the library never reads half a script.
        beside = self.path.with_suffix(".new")
        beside.write_text("\n".join(lines) + "\n", "ascii")
        beside.replace(self.path)
