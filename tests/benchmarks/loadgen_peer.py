"""The real LoadGen, asked for its schedules and verdicts; runs in an environment of its own.

build/loadgen/bin/python tests/benchmarks/loadgen_peer.py CASES
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import threading
from pathlib import Path

import mlperf_loadgen as lg

_ENDED = re.compile(r'"complete_ns":(\d+)')  # from the scheduled time on
_BEGUN = re.compile(
    r'"name":"Sample","cat":"default","ph":"b","pid":\d+,"id":\d+,"ts":([\d.]+)'
)


def run(rate, least_seconds, queries, seed, limit=1.0, percentile=0.99, late=0):
    """One Server test whose first `late` queries miss: (due in ns, its summary, latencies in ns)."""
    asked = 0

    def issue(samples):
        nonlocal asked
        for sample in samples:
            asked += 1
            answer = [lg.QuerySampleResponse(sample.id, 0, 0)]
            if asked <= late:
                threading.Timer(3 * limit, lg.QuerySamplesComplete, (answer,)).start()
            else:
                lg.QuerySamplesComplete(answer)

    settings = lg.TestSettings()
    settings.scenario = lg.TestScenario.Server
    settings.mode = lg.TestMode.PerformanceOnly
    settings.server_target_qps = rate
    settings.server_target_latency_ns = int(limit * 1e9)
    settings.server_target_latency_percentile = percentile
    settings.min_duration_ms = int(least_seconds * 1000)
    settings.min_query_count = queries
    settings.schedule_rng_seed = seed
    with tempfile.TemporaryDirectory() as folder:
        logs, output = lg.LogSettings(), lg.LogOutputSettings()
        output.outdir, output.copy_summary_to_stdout = folder, False
        logs.enable_trace, logs.log_output = True, output
        sut = lg.ConstructSUT(issue, lambda: None)
        qsl = lg.ConstructQSL(100, 100, lambda _: None, lambda _: None)
        lg.StartTestWithLogSettings(sut, qsl, settings, logs)
        lg.DestroyQSL(qsl)
        lg.DestroySUT(sut)
        trace = Path(folder, "mlperf_log_trace.json").read_text("utf-8")
        summary = Path(folder, "mlperf_log_summary.txt").read_text("utf-8")
    due = sorted(round(float(found) * 1000) for found in _BEGUN.findall(trace))
    late_by = [int(found) for found in _ENDED.findall(trace)]
    return [instant - due[0] for instant in due], summary, late_by


def main(cases: int, least: list[tuple[float, int, int]]) -> None:
    """Print both as one JSON object."""
    schedules = []
    for case in range(cases):
        asked = {
            "queries_per_second": 300 + 200 * case,
            "least_seconds": 0.5,
            "least_queries": 50,
            "seed": 13_281_865_557_512_327_830 + case,
        }
        schedules.append({**asked, "due_ns": run(*asked.values())[0]})
    verdicts = []
    for percentile, misses, enough in least:
        for queries in (enough - 1, enough):
            _, summary, latencies = run(
                20_000, 0.001, queries, 1, 0.1, percentile=percentile, late=misses
            )
            verdicts.append(
                {
                    "percentile": percentile,
                    # A busy machine may be late for more than were asked to be.
                    "misses": sum(ns > 0.1e9 for ns in latencies),
                    "queries": len(latencies),
                    "limit_seconds": 0.1,
                    "early_stopping": "Early stopping satisfied: Yes" in summary,
                }
            )
    print(json.dumps({"schedules": schedules, "verdicts": verdicts}))


if __name__ == "__main__":
    main(int(sys.argv[1]), json.load(sys.stdin))
