"""How long undo takes after a runner's end, as the table of loadtests/chaos/faults/README.md.

make test-exhaustive ARGS="--undo-times FILE"
python tests/support/undo_times.py FILE [--write]

The file has one line of JSON a fault: the seconds from the signal to the end of the undo,
with nothing left, for each point at which a runner was ended. A fault that was run again
counts as it was the last time. Exit 1 where one took longer than it may, or was ended at
too few points.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import statistics
import subprocess
import sys
import textwrap
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import passages

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "loadtests" / "chaos" / "faults" / "README.md"
PASSAGE = "undo times"
LIMITS_SECONDS = {"SIGTERM": 1.0, "SIGINT": 1.0, "SIGKILL": 3.0}
POINTS = 20
_MILLISECOND_DIGITS = 3


@dataclass(frozen=True)
class Times:
    """One fault's."""

    fault: str
    """Kind, and what was set of it."""
    way: str
    """The mechanism that it took here; empty where it has no choice."""
    seconds: dict[str, list[float]]
    """From the signal to the undo's end, by name of the signal."""
    at: str
    revision: str
    machine: str

    def problems(self) -> list[str]:
        """What is not as it has to be, in sentences."""
        found = []
        for name, limit in LIMITS_SECONDS.items():
            taken = self.seconds.get(name, [])
            if len(taken) < POINTS:
                found.append(f"{self.fault}: {name} at {len(taken)} points of {POINTS}")
            if taken and max(taken) > limit:
                found.append(
                    f"{self.fault}: {name} undone after {max(taken):.2f} s; {limit:g} s"
                )
        return found


def append(file: Path, fault: str, way: str, seconds: dict[str, list[float]]) -> None:
    """Add a fault, at every point of which nothing was left."""
    rounded = {
        name: [round(each, _MILLISECOND_DIGITS) for each in taken]
        for name, taken in seconds.items()
    }
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    line = Times(fault, way, rounded, now, _revision(), machine())
    with file.open("a", encoding="utf-8") as kept:
        kept.write(json.dumps(asdict(line)) + "\n")


def read(file: Path) -> list[Times]:
    """The last of each fault, by name."""
    lines = file.read_text("utf-8").splitlines()
    found = {each["fault"]: Times(**each) for each in map(json.loads, lines)}
    return [found[name] for name in sorted(found)]


def table(found: list[Times]) -> str:
    """Markdown: a line for each fault."""
    names = list(LIMITS_SECONDS)
    lines = [
        f"| fault | points | {' | '.join(names)} |",
        f"| --- | --- |{' --- |' * len(names)}",
        *(_row(each, names) for each in found),
    ]
    points = sum(len(taken) for each in found for taken in each.seconds.values())
    worst = ", ".join(
        f"{name} {max(max(each.seconds[name]) for each in found):.2f} s"
        for name in names
    )
    told = (
        "Seconds from the signal until all is undone, nothing is left, and the runner is"
        f" gone (SIGKILL: its journal): the worst, and the median. {points} ends in all;"
        f" the worst: {worst}. Nothing was left after any. {found[0].machine},"
        f" {_range(each.at[:10] for each in found)}."
    )
    return "\n".join([*lines, "", *textwrap.wrap(told, 110)])


def _row(times: Times, names: list[str]) -> str:
    way = f" ({times.way})" if times.way and times.way not in times.fault else ""
    points = "/".join(str(len(times.seconds[name])) for name in names)
    cells = [
        f"{max(times.seconds[name]):.2f}, {statistics.median(times.seconds[name]):.2f}"
        for name in names
    ]
    return f"| `{times.fault}`{way} | {points} | {' | '.join(cells)} |"


def _range(days: Any) -> str:
    found = sorted(set(days))
    return found[0] if len(found) == 1 else f"{found[0]} to {found[-1]}"


def machine() -> str:
    """Cores and processor of this one."""
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    named = [
        ln.partition(":")[2].strip() for ln in lines if ln.startswith("model name")
    ]
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores, {named[0] if named else platform.machine()}"


def _revision() -> str:
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    found = subprocess.run(git, capture_output=True, text=True, check=False)
    return found.stdout.strip()


def main(arguments: list[str]) -> int:
    """Print the table, or write it between its marks; the value is the exit status."""
    (source,) = (word for word in arguments if not word.startswith("--"))
    found = read(Path(source))
    content = table(found)
    passages.show(PASSAGE, content, PAGE, write="--write" in arguments)
    problems = [problem for each in found for problem in each.problems()]
    print("\n".join(problems), file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
