"""How often tracing ends the server, as the table of docs/production-latency.md, from files of results.

make bench ONLY=traces.deaths
python tests/benchmarks/deaths_table.py tests/benchmarks/results/FILE.json … [--write]
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "tests" / "support")]

import figures
import passages
from scipy.stats import binomtest

PAGE = ROOT / "docs" / "production-latency.md"
PASSAGE = "trace deaths"
WIDTH = 110
PREFIX = "trace_deaths_"
COUNTS = ("n", "crashes", "hangs", "live_while_hung", "ready_while_hung")
MODES = {
    "otel": "OpenTelemetry",
    "eager": "the same, `bsp_schedule_delay=1000`",
    "files": "files",
    "off": "none",
}
LOADS = {"closed": "as fast as 8 clients go", "poisson": "300 a second"}
MINUTE, HOUR = 60.0, 3600.0
BUSY = 4000
TRACES_A_SECOND = 2
"""The least that carry a p99 with its interval over five minutes (368 traces)."""


def table(documents: list[dict[str, Any]]) -> str:
    """Markdown: a line for each cell, its deaths by face, with their 95 % interval."""
    cells = _merged([figure for each in documents for figure in each["figures"]])
    lines = [
        "| traces | `rate` | requests | traced | crashed | hung | deaths per 10,000 traced |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *map(_line, cells),
        "",
        *textwrap.wrap(_said(cells, documents), WIDTH),
    ]
    return "\n".join(lines)


def _merged(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was measured more than once, taken together."""
    cells: dict[str, dict[str, Any]] = {}
    for figure in found:
        cell = cells.setdefault(figure["name"], {**figure, **dict.fromkeys(COUNTS, 0)})
        cell.update({key: cell[key] + figure[key] for key in COUNTS})
    for cell in cells.values():
        cell.update(figures.rate(_deaths(cell), cell["n"] / 10_000))
    return sorted(cells.values(), key=_place)


def _place(cell: dict[str, Any]) -> tuple[int, str, int]:
    mode, load, rate = _parts(cell)
    return list(MODES).index(mode), load, int(rate or 0)


def _deaths(cell: dict[str, Any]) -> int:
    return int(cell["crashes"] + cell["hangs"])


def _parts(cell: dict[str, Any]) -> tuple[str, str, str]:
    """Mode, load and rate, of the figure's name."""
    mode, load, *rate = cell["name"].removeprefix(PREFIX).split("_")
    return mode, load, rate[-1] if rate else ""


def _line(cell: dict[str, Any]) -> str:
    mode, load, rate = _parts(cell)
    words = [
        *(MODES[mode], rate, LOADS[load]),
        f"none of {cell['n']:,}" if mode == "off" else f"{cell['n']:,}",
        *(str(cell["crashes"]), str(cell["hangs"])),
        "{value:.2g} [{ci_low:.2g}, {ci_high:.2g}]".format(**cell),
    ]
    return f"| {' | '.join(words)} |"


def _said(cells: list[dict[str, Any]], documents: list[dict[str, Any]]) -> str:
    hangs, live, ready = (sum(cell[key] for cell in cells) for key in COUNTS[2:])
    (triton,) = {cell["versions"]["triton"] for cell in cells}
    hardware = documents[0]["hardware"]
    revisions = ", ".join(sorted({each["revision"] for each in documents}))
    return (
        f"Triton {triton}; exact 95 % intervals. Of those that hung, HTTP went on to"
        f" call {ready} of {hangs} ready, gRPC {live} live. At {TRACES_A_SECOND} traces a second,"
        f" which a p99 over five minutes needs, that is a death every"
        f" {_every(cells, 'otel', TRACES_A_SECOND, HOUR)} h in OpenTelemetry mode and every"
        f" {_every(cells, 'files', TRACES_A_SECOND, HOUR)} h with files (so far apart"
        f" by chance alone: p = {_chance(cells):.2g}); at {BUSY:,} requests"
        f" a second and rate 100 every {_every(cells, 'otel', BUSY / 100, MINUTE)} and"
        f" {_every(cells, 'files', BUSY / 100, MINUTE)} min. {hardware['cores']} cores,"
        f" {hardware['cpu']}; revisions {revisions}."
    )


def _summed(cells: list[dict[str, Any]], mode: str) -> tuple[int, int]:
    """Deaths and traces of all cells of a mode."""
    chosen = [cell for cell in cells if _parts(cell)[0] == mode]
    return sum(map(_deaths, chosen)), sum(cell["n"] for cell in chosen)


def _chance(cells: list[dict[str, Any]]) -> float:
    """p of the two modes' difference: of all deaths a binomial share in either."""
    (otel, traced), (files, written) = (_summed(cells, m) for m in ("otel", "files"))
    share = traced / (traced + written)
    return float(binomtest(otel, otel + files, share).pvalue)


def _every(
    cells: list[dict[str, Any]], mode: str, traces_a_second: float, unit: float
) -> str:
    """Mean time between deaths, by all cells of a mode together."""
    deaths, traced = _summed(cells, mode)
    found = figures.rate(deaths, traced / traces_a_second / unit)
    if not deaths:
        return f"{1 / found['ci_high']:.2g} or more"
    ends = [1 / found[end] for end in ("value", "ci_high", "ci_low")]
    return "{} [{}, {}]".format(*(f"{end:.{0 if end >= 10 else 1}f}" for end in ends))


if __name__ == "__main__":
    sys.exit(passages.show_results(PASSAGE, table, PAGE, sys.argv[1:]))
