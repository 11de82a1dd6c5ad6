"""NVIDIA's perf_analyzer, fetched on demand into a folder of its own, to compare with.

The wheel tritonclient 2.48.0 is the last that carries the program. Only the program is
taken out of it; nothing of the wheel is ever imported or installed. It needs libb64 of
the system, and libcudart, which the embedded Triton's wheel brings along.
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from figures import require

from exporter.errors import EmbeddedTritonError
from exporter.triton import backend

VERSION: Final = "2.48.0"
FOLDER: Final = Path(__file__).parents[2] / "build" / f"perf_analyzer-{VERSION}"
_SHA256: Final = "7074885798e8a711fedaf94d6dd77f310973fe2ebf29fb2837db350a43e2d6a5"
_MEMBER: Final = f"tritonclient-{VERSION}.data/data/bin/perf_analyzer"
_LIBB64: Final = "apt-get install libb64-0d"
_WINDOW_MILLISECONDS: Final = 1500
_WINDOWS: Final = 3
_TIMEOUT_SECONDS: Final = 120


class PerfAnalyzer:
    """The program, ready to run.

    Raises:
        Skipped: it cannot be had or run here; says what is missing.
    """

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        self._program = folder / "perf_analyzer"
        if not self._program.is_file():
            self._fetch()
        self._link_cuda()
        missing = self._missing_libraries()
        require(found=not missing, what=f"library {', '.join(missing)}", how=_LIBB64)

    @property
    def program(self) -> Path:
        """The program, for those that run it themselves."""
        return self._program

    @property
    def environment(self) -> dict[str, str]:
        """What it has to be run with."""
        return self._environment()

    def closed_loop(self, model: str, grpc: str) -> float:
        """p50 in seconds of one request at a time over gRPC, back to back, for three windows of 1.5 s."""
        return self._run(model, grpc, "--concurrency-range", "1")

    def paced(self, model: str, grpc: str, per_second: float) -> float:
        """p50 in seconds of requests over gRPC at a constant rate, for three windows of 1.5 s."""
        rate = f"{per_second:g}"
        return self._run(model, grpc, "--request-rate-range", rate)

    def _run(self, model: str, grpc: str, *load: str) -> float:
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.csv"
            command = [
                *(str(self._program), "-m", model, "-i", "grpc", "-u", grpc, *load),
                *("--measurement-mode", "time_windows"),
                *("-p", str(_WINDOW_MILLISECONDS), "-r", str(_WINDOWS)),
                # On a shared machine it would else end without a number.
                *("-s", "900", "-f", str(report)),
            ]
            done = subprocess.run(
                command,
                env=self._environment(),
                capture_output=True,
                text=True,
                check=False,
                timeout=_TIMEOUT_SECONDS,
            )
            if done.returncode != 0 or not report.is_file():
                raise RuntimeError(
                    f"perf_analyzer ended with {done.returncode}: "
                    f"{(done.stderr or done.stdout)[-500:]}"
                )
            with report.open(newline="", encoding="utf-8") as lines:
                row = next(csv.DictReader(lines))
        return float(row["p50 latency"]) / 1e6

    def _fetch(self) -> None:
        """Download the wheel, checked by its hash, and take the program out of it."""
        with tempfile.TemporaryDirectory() as folder:
            wanted = Path(folder) / "wanted.txt"
            wanted.write_text(f"tritonclient=={VERSION} --hash=sha256:{_SHA256}\n")
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            done = subprocess.run(
                [*pip, "--require-hashes", "-r", str(wanted), "-d", folder],
                capture_output=True,
                text=True,
                check=False,
                timeout=300,
            )
            wheels = list(Path(folder).glob("*.whl"))
            require(
                found=done.returncode == 0 and bool(wheels),
                what=f"wheel tritonclient {VERSION}",
                how=f"pip says: {done.stderr.strip()[-200:]}",
            )
            self._folder.mkdir(parents=True, exist_ok=True)
            part = self._program.with_suffix(".part")
            with zipfile.ZipFile(wheels[0]) as wheel:
                part.write_bytes(wheel.read(_MEMBER))
            part.chmod(0o755)
            part.rename(self._program)

    def _link_cuda(self) -> None:
        link = self._folder / "libcudart.so.12"
        if link.exists():
            return
        try:
            site = backend.inspect(backend.find()).site
        except EmbeddedTritonError:
            found = None
        else:
            found = next(site.glob("nvidia_pytriton.libs/libcudart-*.so.12*"), None)
        require(found=found is not None, what="libcudart.so.12", how="make env")
        link.unlink(missing_ok=True)
        link.symlink_to(str(found))

    def _missing_libraries(self) -> list[str]:
        done = subprocess.run(
            ["ldd", str(self._program)],
            env=self._environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        lines = done.stdout.splitlines()
        return [line.split()[0] for line in lines if "not found" in line]

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "LD_LIBRARY_PATH": str(self._folder)}


if __name__ == "__main__":
    analyzer = PerfAnalyzer()
    print(FOLDER / "perf_analyzer")
