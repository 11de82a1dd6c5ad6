"""What tracing costs, as the table of docs/production-latency.md, from files of results.

make bench ONLY=traces.overhead
make bench ONLY=traces.cost
python tests/benchmarks/trace_table.py tests/benchmarks/results/FILE.json … [--write]
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support")]

import passages

PAGE = ROOT / "docs" / "production-latency.md"
PASSAGE = "trace cost"
RATES = (1000, 100, 10, 1)
COLUMNS = ("throughput_loss", "p99_rise", "server_cpu_share")


def table(documents: list[dict[str, Any]]) -> str:
    """Markdown: a line for each rate, a change in percent with its 95 % interval each."""
    hardware = documents[0]["hardware"]
    revisions = ", ".join(sorted({each["revision"] for each in documents}))
    figures = {f["name"]: f for each in documents for f in each["figures"]}
    lines = [
        "| `rate` | throughput lost | p99 rises by | CPU time of the server, by the cost of one trace |",
        "| --- | --- | --- | --- |",
    ]
    for rate in RATES:
        cells = [_cell(figures.get(f"trace_rate_{rate}_{name}")) for name in COLUMNS]
        lines.append(f"| {rate} | {' | '.join(cells)} |")
    loss = figures["trace_rate_100_throughput_loss"]
    cost = figures["trace_server_cpu"]
    told = (
        "Percent, with 95 % intervals, against level OFF. Left: one request in `rate`"
        " traced against none, pairs of windows side by side in random order"
        f" ({loss['n']} at rate 100), clients in a closed loop, {loss['off']:.0f} requests"
        " a second without tracing, the sidecar reading the files on the same cores."
        f" Right: {cost['value']:.0f} µs a trace [{cost['ci_low']:.0f},"
        f" {cost['ci_high']:.0f}], by {cost['n']} pairs with every request traced at a"
        f" low rate. {hardware['cores']} cores, {hardware['cpu']}; revisions {revisions}."
    )
    lines += ["", *textwrap.wrap(told, 110)]
    return "\n".join(lines)


def _cell(figure: dict[str, Any] | None) -> str:
    if figure is None:
        return "not under load (server#7795)"
    return "{value:.2g} [{ci_low:.2g}, {ci_high:.2g}]".format(**figure)


if __name__ == "__main__":
    sys.exit(passages.show_results(PASSAGE, table, PAGE, sys.argv[1:]))
