"""The table of drift/README.md, from what the benchmark kept.

    python tests/benchmarks/peers/table.py [--write]

`make bench ONLY=peers` keeps build/peers/measured.json; `--write` takes it over beside
this file and writes the table into the page, between its two marks.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "support")]

import passages

MEASURED = HERE / "measured.json"
NEW = HERE.parents[2] / "build" / "peers" / "measured.json"
PAGE = HERE.parents[2] / "drift" / "README.md"
PASSAGE = "peers"
OURS = "tritonwatch"
STREAMS = ("clean_100", "clean_500", "clean_5000", "shift_0.1", "shift_0.25")


def table(measured: dict[str, Any]) -> str:
    """Markdown: how often each rule flags anything, and the feature that moved."""
    windows = measured["windows"]
    lines = [
        (
            "| rule | clean, 100 rows | clean, 500 | clean, 5,000 | 0.1 sd found "
            "| 0.25 sd found | 100,000 rows x 60, CPU s |"
        ),
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    ours = measured["ours_cpu_seconds"]["value"]
    row = [_share(measured["flags"][OURS], name) for name in STREAMS]
    budget = "tritonwatch, 1 false alarm in 1,000 windows"
    lines.append(_line(budget, row, f"{ours:.2g}"))
    for peer, found in sorted(measured["peers"].items()):
        spent = ", ".join(
            f"{name} {seconds['cpu']:.2g}"
            for name, seconds in sorted(found["seconds"].items())
        )
        for rule, shares in sorted(found["flags"].items()):
            row = [_share(shares, name) for name in STREAMS]
            name = f"{peer.replace('_', '-')} {found['version']}, {rule}"
            lines.append(_line(name, row, spent))
    counts = ", ".join(f"{windows[name]} of {name}" for name in STREAMS)
    versions = ", ".join(f"{k} {v}" for k, v in sorted(measured["versions"].items()))
    lines += ["", f"Windows: {counts}. {versions}."]
    return "\n".join(lines)


def _share(shares: dict[str, dict[str, float]], stream: str) -> str:
    """Windows with any flag, or after a shift those that flag the shifted feature."""
    kind = "any" if stream.startswith("clean") else "first"
    return f"{100 * shares[stream][kind]:.0f} %"


def _line(name: str, shares: list[str], spent: str) -> str:
    return f"| {name} | {' | '.join(shares)} | {spent} |"


def main(arguments: list[str]) -> int:
    """Print the table, or write it; the value is the exit status."""
    write = "--write" in arguments
    if write and NEW.exists():
        MEASURED.write_bytes(NEW.read_bytes())
    content = table(json.loads(MEASURED.read_text("utf-8")))
    passages.show(PASSAGE, content, PAGE, write=write)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
