"""How often the drift alarm is raised where nothing changes: many runs, in chunks.

    python tests/benchmarks/false_alarms.py iid REFERENCE ROWS FIRST LAST >> false_alarms.jsonl
    python tests/benchmarks/false_alarms.py real NAME STRETCH FIRST LAST >> false_alarms.jsonl
    python tests/benchmarks/false_alarms.py table --write

A run has its own seed, so that chunks may be made anywhere and in any order. `iid` draws a
reference of so many rows and 20 windows of so many beside it; `real` deals a year of
flights or weather out anew in stretches of days, two thirds the reference.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
from scipy import stats

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]

import passages

MEASURED = HERE / "false_alarms.jsonl"
PAGE = HERE.parents[1] / "drift" / "README.md"
SEED = 20261121
WINDOWS = 20
PASSAGE = "false alarms"


def iid(reference: int, rows: int, first: int, last: int) -> dict[str, object]:
    """Runs `first` to `last` - 1 of 20 mixed features, budget 1 in 1,000."""
    from drifting import false_alarms  # noqa: PLC0415 - needs the path

    alarms = sum(
        false_alarms(
            np.random.default_rng([SEED, reference, rows, run]),
            reference=reference,
            rows=rows,
            windows=WINDOWS,
        )
        for run in range(first, last)
    )
    told = {"reference": reference, "rows": rows, "runs": last - first, "first": first}
    return {**told, "windows": WINDOWS * (last - first), "alarms": alarms}


def real(name: str, stretch: int, first: int, last: int) -> dict[str, object]:
    """Deals `first` to `last` - 1 of a year, budget 1 in 1,000 days."""
    import real_records  # noqa: PLC0415 - needs the path

    records = real_records.load(name)
    found = [
        real_records.replay(
            records, stretch, np.random.default_rng([SEED, stretch, run, 7])
        )
        for run in range(first, last)
    ]
    told = {"name": name, "stretch": stretch, "runs": last - first, "first": first}
    return {
        **told,
        "windows": sum(replay.windows for replay in found),
        "alarms": sum(len(replay.alarms) for replay in found),
    }


def table(lines: str) -> str:
    """The page's table of all chunks."""
    found: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for line in lines.splitlines():
        chunk = json.loads(line)
        row = found[_row(chunk)]
        for place, key in enumerate(("runs", "windows", "alarms")):
            row[place] += chunk[key]
    head = (
        "| traffic | reference | runs | windows | alarms | in 1,000 windows, 95 % |\n"
    )
    rows = [
        f"| {traffic} | {reference} | {runs} | {windows:,} | {alarms} | "
        f"{_rate(alarms, windows)} |\n"
        for (traffic, reference), (runs, windows, alarms) in found.items()
    ]
    return head + "| --- " * 6 + "|\n" + "".join(rows)


def _row(chunk: dict[str, int]) -> tuple[str, str]:
    if "name" in chunk:
        one = chunk["stretch"] == 1
        days = "single days" if one else f"stretches of {chunk['stretch']} days"
        return f"{chunk['name']}, {days}", "two thirds of the year"
    return f"windows of {chunk['rows']:,} rows", f"{chunk['reference']:,} rows"


def _rate(alarms: int, windows: int) -> str:
    low = stats.chi2.ppf(0.025, 2 * alarms) / 2 if alarms else 0.0
    high = stats.chi2.ppf(0.975, 2 * alarms + 2) / 2
    rate, low, high = (1000 * value / windows for value in (alarms, low, high))
    return f"{rate:.2f} ({low:.2f} to {high:.2f})"


def main(kind: str, *arguments: str) -> None:
    """One chunk on stdout, or the table into the page."""
    if kind == "table":
        shown = table(MEASURED.read_text("utf-8"))
        passages.show(PASSAGE, shown, PAGE, write="--write" in arguments)
    elif kind == "iid":
        print(json.dumps(iid(*map(int, arguments))), flush=True)
    else:
        name, *numbers = arguments
        print(json.dumps(real(name, *map(int, numbers))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
