"""Recorded arrivals, sent again."""

from __future__ import annotations

import csv
import json
import zipfile
from pathlib import Path  # noqa: TC003 - pydantic reads it at run time
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import numpy as np
from pydantic import Field, PrivateAttr, model_validator

from loadtests.plan import MAX_REQUESTS
from loadtests.profiles.profile import Curve, Phase, Profile, within

if TYPE_CHECKING:
    from loadtests.profiles.profile import Floats

_SECONDS: Final = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_MOST_BYTES: Final = 2**30
_SLICES: Final = 60
_UNREADABLE: Final = (
    ValueError,
    TypeError,
    EOFError,
    LookupError,
    AttributeError,
    csv.Error,
    OverflowError,
    RecursionError,
    zipfile.BadZipFile,
)


class Replay(Profile):
    """Arrival times from a file, shifted to begin at 0.

    `.npy` holds one array, `.json` one list, anything else one number a line (`#`
    begins a comment); perf_analyzer's `--request-intervals` files are gaps in us. Azure's
    CSV (`TIMESTAMP`) and Mooncake's JSON lines (`timestamp`) have their own unit. The
    last gap of the recording is treated as silence at the end.
    """

    kind: Literal["replay"] = "replay"
    file: Path
    """The recording."""
    holds: Literal["times", "gaps"] = Field(default="times")
    """Content of the file: instants, or the gaps between them."""
    unit: Literal["s", "ms", "us", "ns"] = Field(default="s")
    """Unit of the numbers."""
    speed: float = Field(default=1.0, gt=0, le=10_000)
    """2 sends twice as fast as recorded."""
    limit_seconds: float | None = Field(default=None, gt=0)
    """Part of the replay to run."""
    _times: Floats = PrivateAttr()

    @model_validator(mode="after")
    def _read(self) -> Self:
        try:
            if self.file.stat().st_size > _MOST_BYTES:
                raise ValueError(f"{self.file} is larger than the maximum of 1 GiB")
            content = self.file.read_bytes()
            numbers = _parsed(self, content)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise ValueError(f"found {str(self.file)!r}: {reason}") from None
        self._times = self._seconds(numbers)
        return self

    def _seconds(self, numbers: Floats) -> Floats:
        if numbers.ndim != 1 or not 1 <= numbers.size <= MAX_REQUESTS:
            raise ValueError(
                f"found an array of shape {numbers.shape} in {self.file}; "
                f"want one dimension with 1 to {MAX_REQUESTS:,} numbers"
            )
        with np.errstate(invalid="ignore"):
            gaps = (
                numbers
                if self.holds == "gaps"
                else np.diff(numbers, prepend=numbers[0])
            )
        broken = ~np.isfinite(numbers) | (gaps < 0)
        if broken.any():
            line = int(np.argmax(broken))
            raise ValueError(
                f"found a decrease or a value that is not finite after entry {line} "
                f"of {self.file}; want {self.holds} that "
                f"{'are at least 0' if self.holds == 'gaps' else 'never decrease'}"
            )
        times = np.cumsum(numbers) if self.holds == "gaps" else numbers - numbers[0]
        seconds = times * (_SECONDS[self.unit] / self.speed)
        if self.limit_seconds is not None:
            seconds = within(seconds, self.limit_seconds)
        if not seconds.size:
            raise ValueError(
                f"found no request within {self.limit_seconds:g} s in {self.file}; "
                "increase limit_seconds"
            )
        return seconds

    @property
    def length_seconds(self) -> float:
        """Time until one mean gap after the last arrival; a second if there are no gaps."""
        last, count = float(self._times[-1]), self._times.size
        return last + last / (count - 1) if count > 1 and last > 0 else last + 1.0

    def arrivals(self, rng: np.random.Generator) -> Floats:  # noqa: ARG002 - recorded
        """Return the recorded arrivals."""
        return self._times.copy()

    def curve(self) -> Curve:
        """The recorded rate, in sixty slices."""
        edges = np.linspace(0.0, self.length_seconds, _SLICES + 1)
        counts = np.histogram(self._times, edges)[0]
        rates = np.repeat(counts / np.diff(edges), 2)
        return Curve(np.repeat(edges, 2)[1:-1], rates)

    def phases(self) -> tuple[Phase, ...]:
        """The whole."""
        length = self.length_seconds
        return (Phase("replay", 0.0, length, self._times.size / length),)


def _parsed(settings: Replay, content: bytes) -> Floats:
    try:
        return np.asarray(_numbers(settings, content), np.float64)
    except _UNREADABLE as error:
        raise ValueError(
            f"found {str(settings.file)!r}, which cannot be read: {error}"
        ) from None


def _numbers(settings: Replay, content: bytes) -> Any:
    file = settings.file
    if file.suffix == ".npy":
        return np.load(file, allow_pickle=False)
    text = content.decode("utf-8-sig")
    if file.suffix == ".json":
        return json.loads(text)
    stamps = _trace_seconds(text.splitlines())
    if stamps is not None:
        if (settings.holds, settings.unit) != ("times", "s"):
            raise ValueError(
                "a trace has times in its own unit; leave out holds and unit"
            )
        return stamps
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [float(line) for line in lines if line]


def _trace_seconds(lines: list[str]) -> Floats | None:
    """Arrivals in a trace of Azure or Mooncake; None for any other file."""
    if lines and lines[0].startswith("{"):
        stamps = [json.loads(line)["timestamp"] for line in lines if line.strip()]
        return np.array(stamps, np.float64) / 1e3
    rows = csv.DictReader(lines)
    if "TIMESTAMP" not in (rows.fieldnames or ()):
        return None
    texts = [row["TIMESTAMP"].removesuffix("+00:00") for row in rows]
    instants = np.array(texts, "datetime64[ns]")
    return np.asarray((instants - instants[:1]) / np.timedelta64(1, "s"), np.float64)
