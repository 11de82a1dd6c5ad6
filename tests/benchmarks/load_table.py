"""The load engine beside other tools, as the passage of loadtests/README.md, from results.

make bench ONLY=load.stall
make bench ONLY=load.closed_loop
make bench ONLY=load.open_loop
python tests/benchmarks/load_table.py tests/benchmarks/results/FILE.json … [--write]
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support")]

import passages

PAGE = ROOT / "loadtests" / "README.md"
PASSAGE = "beside others"
WIDTH = 110
TOOLS = {
    "truth": "the truth: the schedule and the server's own count of its answers",
    "tritonwatch": "tritonwatch load",
    "tritonwatch_in_locust": "tritonwatch in Locust",
    "loadgen_server": "MLPerf LoadGen, Server",
    "perf_analyzer_async": "perf_analyzer, request rate, `--async`",
    "perf_analyzer_sync": "perf_analyzer, request rate, `--sync`",
    "locust_constant_throughput": "Locust, `constant_throughput`",
}
RATES = (500, 1000, 2000)

Figures = dict[str, dict[str, Any]]


def passage(documents: list[dict[str, Any]]) -> str:
    """Markdown: who tells of a stall, what a request costs, how punctual a send is."""
    figures = {f["name"]: f for each in documents for f in each["figures"]}
    hardware = documents[0]["hardware"]
    revisions = ", ".join(sorted({each["revision"] for each in documents}))
    where = f"{hardware['cores']} cores, {hardware['cpu']}; revisions {revisions}."
    parts = [stall(figures), closed(figures), punctual(figures), where]
    return "\n\n".join(parts)


def stall(figures: Figures) -> str:
    """The p99 that each tool reports of a second in which the server stood still."""
    lines = ["| tool | p99 it reports |", "| --- | --- |"]
    for name, tool in TOOLS.items():
        figure = figures.get(f"load_stall_p99_{name}")
        told = "no number" if figure is None else f"{1e3 * figure['value']:.3g} ms"
        lines.append(f"| {tool} | {told} |")
    error = figures["load_stall_p99_error"]
    said = (
        "A server that stands still for 1 s of 12 s at 1,000 requests a second. Ours is off by"
        f" {_percent(error)} of the truth in the median of {error['n']} runs."
    )
    return f"{_filled(said)}\n\n" + "\n".join(lines)


def closed(figures: Figures) -> str:
    """Throughput and client CPU beside perf_analyzer's."""
    told = []
    for protocol in ("grpc", "http"):
        time = figures[f"load_closed_{protocol}_time"]
        cpu = figures[f"load_closed_{protocol}_cpu"]
        told.append(
            f"over {protocol.replace('grpc', 'gRPC').replace('http', 'HTTP')}"
            f" {1 / time['value']:.2g} times perf_analyzer's throughput"
            f" [{1 / time['ci_high']:.2g}, {1 / time['ci_low']:.2g}] at {cpu['value']:.2g}"
            f" times its CPU a request [{cpu['ci_low']:.2g}, {cpu['ci_high']:.2g}]"
        )
    count = figures["load_closed_grpc_time"]["n"]
    return _filled(
        f"A closed loop of 32: {', '.join(told)}; {count} runs of each, in turns."
    )


def punctual(figures: Figures) -> str:
    """How late each request is sent, inside Locust, and what the machine adds."""
    lines = [
        "| rate | late p50 | late p99 | CV of the gaps, less 1 | of a timer that sends nothing |",
        "| --- | --- | --- | --- | --- |",
    ]
    for rate in RATES:
        p50, p99, cv = (
            figures[f"load_locust_{rate}_{name}"]
            for name in ("late_p50", "late_p99", "cv_error")
        )
        bare = figures[f"load_bare_timer_{rate}_cv_error"]
        lines.append(
            f"| {rate} | {p50['value']:.0f} µs | {p99['value']:.0f} µs |"
            f" {_share(cv)} | {_share(bare)} |"
        )
    runs = ", ".join(str(figures[f"load_locust_{r}_late_p50"]["n"]) for r in RATES)
    said = (
        "An open loop inside Locust, Poisson, one worker, gRPC: from when a request was due to"
        f" its send, and the variation of the gaps between sends; median [95 % interval; of 5 the range] of {runs}"
        " runs. Right, what the machine itself does to a process that only waits, at"
        " real-time priority: a virtual machine that stands still for some milliseconds now"
        " and then bends both."
    )
    return f"{_filled(said)}\n\n" + "\n".join(lines)


def _share(figure: dict[str, Any]) -> str:
    return "{value:.3f} [{ci_low:.3f}, {ci_high:.3f}]".format(**figure)


def _percent(figure: dict[str, Any]) -> str:
    return f"{100 * figure['value']:.2g} %"


def _filled(text: str) -> str:
    return "\n".join(textwrap.wrap(text, WIDTH))


if __name__ == "__main__":
    sys.exit(passages.show_results(PASSAGE, passage, PAGE, sys.argv[1:]))
