"""When faults are told, as the table of loadtests/chaos/README.md, from journals.

tritonwatch chaos run NAME … --json JOURNALS
python tests/support/detection_times.py JOURNALS [--write]

Exit 1 where something was not told in its time.
"""

from __future__ import annotations

import datetime as dt
import statistics
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import passages
from undo_times import machine

from loadtests.chaos.measuring.findings import findings
from loadtests.chaos.results import journal_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from loadtests.chaos.measuring.detection import Detected
    from loadtests.chaos.measuring.findings import Findings

PAGE = Path(__file__).resolve().parents[2] / "loadtests" / "chaos" / "README.md"
PASSAGE = "detection times"
COLUMNS = (
    "experiment",
    "what tells, of the sidecar",
    "every",
    "told after",
    "within",
    "over after",
    "alert",
    "fired after",
    "within",
)
HEAD = (f"| {' | '.join(COLUMNS)} |", "| --- " * len(COLUMNS) + "|")


def table(found: dict[str, list[Findings]]) -> str:
    """Markdown: a line for each experiment that has to be detected."""
    wanted = {name: mine for name, mine in sorted(found.items()) if told(mine)}
    lines = [row(name, mine) for name, mine in wanted.items()]
    busy = [
        n for n, mine in wanted.items() if any(f.verdict == "invalid" for f in mine)
    ]
    note = (
        "Seconds, each experiment as it is shipped; of several repetitions the median and the"
        " worst. Told: from when the fault was there; fired: from when it was begun; over: from"
        " when it was gone and users were served, to when nothing spoke of it any more, with"
        " two intervals to do so. Every: the probes' interval."
        f" {machine()}, {', '.join(days(found.values()))}."
    )
    if busy:
        note += (
            " Told while the machine had other work, so that times of users are not valid:"
            f" {', '.join(f'`{name}`' for name in busy)}."
        )
    return "\n".join([*HEAD, *lines, "", *textwrap.wrap(note, 110)])


def told(found: Iterable[Findings]) -> list[Detected]:
    """What was to tell of the last fault, one for each repetition."""
    return [one.faults[-1].detected[0] for one in found if one.faults[-1].detected]


def row(name: str, found: Sequence[Findings]) -> str:
    """A line of the table."""
    shown = told(found)
    first = shown[0]
    every = {f.sidecar.probe_interval_seconds for f in found if f.sidecar is not None}
    cells = (
        f"`{name}`",
        "" if first.metric is None else f"`{first.metric.replace('|', chr(92) + '|')}`",
        ", ".join(f"{seconds:g}" for seconds in sorted(s for s in every if s)),
        seconds(s.metric_since_effect_seconds for s in shown),
        f"{first.metric_within_seconds:g}",
        over(found),
        *(
            ("", "", "")
            if first.alert is None
            else (
                f"`{first.alert}`",
                seconds(s.alert_after_seconds for s in shown),
                f"{first.alert_within_seconds:g}",
            )
        ),
    )
    return f"| {' | '.join(cells)} |"


def over(found: Iterable[Findings]) -> str:
    """When the sidecar spoke of nothing any more; nothing where it was away, or it lasts."""
    known = [f.sidecar for f in found if f.sidecar is not None]
    if not known or None in {one.cleared_after_seconds for one in known}:
        return ""
    return seconds(one.cleared_after_seconds for one in known)


def seconds(values: Iterable[float | None]) -> str:
    """Median and worst; that it never was, where that is so."""
    all_of_them = list(values)
    known = [value for value in all_of_them if value is not None]
    if len(known) < len(all_of_them):
        return "never"
    if len(known) == 1:
        return f"{known[0]:.2f}"
    return f"{statistics.median(known):.2f}, {max(known):.2f}"


def days(found: Iterable[Sequence[Findings]]) -> list[str]:
    """When they were run."""
    at = [
        dt.datetime.fromtimestamp(f.started_at, dt.UTC) for some in found for f in some
    ]
    return sorted({f"{one:%Y-%m-%d}" for one in at})


def main(arguments: list[str]) -> int:
    """Print the table, or write it between its marks; the value is the exit status."""
    (folder,) = (word for word in arguments if not word.startswith("--"))
    found = {
        # Judged anew: a journal has what was seen.
        file.stem: [findings(e) for e in journal_file.read(file).evidence]
        for file in sorted(Path(folder).glob("*.json"))
    }
    passages.show(PASSAGE, table(found), PAGE, write="--write" in arguments)
    late = [
        f"{name}: not told in time"
        for name, mine in found.items()
        if any(False in (d.metric_in_time, d.alert_in_time) for d in told(mine))
        or any(f.sidecar and f.sidecar.told_the_truth is False for f in mine)
    ]
    print("\n".join(late), file=sys.stderr)
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
