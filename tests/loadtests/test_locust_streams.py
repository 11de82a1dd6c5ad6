"""Streamed answers of a language model, from two workers of Locust."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from monitoring import free_port
from openai_server import DONE, OpenAiServer, Scripted, Write, delta, usage
from waiting import patience

from loadtests import result_file
from loadtests.report.objective_report import objectives_of
from loadtests.report.run_figures import streams_of
from pages.units import number

PACE_SECONDS = 0.02


def test_streams_are_judged_and_their_tokens_are_summed(tmp_path: Path) -> None:
    first, *later = (delta(content=word) for word in ("Ich", " weiß", " es"))
    paced = (Write(part, PACE_SECONDS) for part in later)
    answer = Scripted([Write(first), *paced, Write(usage(9, 7)), Write(DONE)])
    result, port = tmp_path / "result.json", str(free_port())
    with OpenAiServer(lambda *_: answer) as server:
        ended = subprocess.run(
            [
                *(sys.executable, "-m", "locust", "-f", "loadtests/locustfile.py"),
                *("--headless", "--processes", "2", "--model", "chatty"),
                *("--protocol", "openai-chat", "--address", server.address),
                *("--load-profile", "constant", "--rate", "200", "--duration", "2.5"),
                *("--slo", "ttft_p99<20s,itl_p95<20s,stall_p95<1ms,p99<20s"),
                *("--master-port", port, "--master-bind-port", port),
                *("--only-summary", "--result", str(result)),
            ],
            capture_output=True,
            text=True,
            timeout=patience(100),
            check=False,
            cwd=Path(__file__).parents[2],
        )
    found = result_file.read(result)
    judged = {one.term: (one.passed, one.missed_ratio) for one in objectives_of(found)}
    assert judged == {
        "ttft_p99<20s": (True, 0.0),
        "itl_p95<20s": (True, 0.0),
        "stall_p95<1ms": (False, 1.0),
        "p99<20s": (True, 0.0),
    }, ended.stdout
    assert ended.returncode == 1
    requests = found.requests
    assert (requests.tokens.sum(), requests.responses.sum()) == (500 * 7, 500 * 3)
    assert found.between_responses.count == 500 * 2
    rates = streams_of(found)
    assert rates is not None
    rate = rates.output_tokens_per_second
    # 3500 in the 2.5 s of the schedule; the answers come a little apart.
    assert rate is not None
    assert 0 < rate <= 1400
    shown = rf"output tokens per second +{re.escape(number(rate))} \(7 a request\)"
    assert re.search(shown, ended.stdout), ended.stdout
