"""Streamed answers: how many one core can time, and how well."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import aiperf
import figures
import numpy as np
from sidecar_process import COMMAND

from loadtests import result_file
from loadtests.result import Outcome

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from figures import Figure
    from numpy.typing import NDArray

_SERVER = Path(__file__).with_name("streaming_server.py")
_TOKENS_PER_SECOND = 20.0
_TOKENS = 200
_FIRST_SECONDS = 0.1
_FEWER_TOKENS = 100
_RUN_ANSWERS = 2.5
"""Length of a run in answers."""

_QUANTILES = (("p50", 0.5), ("p99", 0.99))
_COMPARED = {
    "first_p50": "median time to the first token",
    "first_p99": "p99 of the time to the first token",
    "gap_mean": "mean time between tokens",
    "tokens_per_second": "tokens a second, the server's by the pace of the requests (AIPerf "
    "divides by the time to the last answer)",
}
_SAID = {"first": "from a request to its first token", "gap": "between two tokens"}


def timed(*, quick: bool = False) -> Iterator[Figure]:
    """A chat server that writes 20 tokens a second to each client: the times that a run
    measures beside those at which the server wrote."""
    for streams in (200, 2000):
        found = [_run(streams) for _ in range(1 if quick else 3)]
        about = (
            f"{streams} streams of {_TOKENS_PER_SECOND:g} tokens a second, {_TOKENS} tokens "
            "each, requests due at even times; median of n runs"
        )
        for name in ("first_p50", "first_p99", "gap_p50", "gap_p99"):
            yield figures.at_most(
                f"streams_{streams}_{name}_error",
                unit="ms",
                goal=1.0 if name.endswith("p50") else None,
                measured=f"|client - server| of the time {_SAID[name[:-4]]}, "
                f"{name[-3:]}, {about}",
                n=len(found),
                server=1e3 * found[0][0][name],
                **figures.median([1e3 * abs(o[name] - t[name]) for t, o in found]),
            )
        yield figures.at_most(
            f"streams_{streams}_cpu",
            unit="cores",
            goal=0.9,
            measured=f"processor time of the sender over the run, {about}",
            n=len(found),
            versions=figures.versions("httptools"),
            **figures.median([ours["cores"] for _, ours in found]),
        )


def beside_aiperf(*, quick: bool = False) -> Iterator[Figure]:
    """The same streams timed by AIPerf: how far each is from the server's own times."""
    aiperf.install()
    tokens = _FEWER_TOKENS
    for streams in (200, 2000):
        pairs = [
            (_run(streams, tokens), _peer(streams, tokens))
            for _ in range(1 if quick else 2)
        ]
        about = (
            f"{streams} streams of {_TOKENS_PER_SECOND:g} tokens a second, {tokens} tokens "
            "each, requests due at even times, one tool after the other; median of n runs"
        )
        for name, said in _COMPARED.items():
            ours, theirs = (
                [abs(tool[name] / truth[name] - 1) for truth, tool in side]
                for side in zip(*pairs, strict=True)
            )
            yield figures.at_most(
                f"streams_{streams}_beside_aiperf_{name}",
                unit="ratio",
                goal=0.03,
                measured=f"|tool / server - 1| of the {said}, {about}",
                n=len(pairs),
                peer_name=f"AIPerf {aiperf.VERSION}",
                peer=float(np.median(theirs)),
                **figures.median(ours),
            )
        yield figures.ratio_at_most(
            f"streams_{streams}_beside_aiperf_cpu",
            [ours["cpu_per_request"] for (_, ours), _ in pairs],
            [theirs["cpu_per_request"] for _, (_, theirs) in pairs],
            1.0,
            measured=f"processor time for each request, ours over AIPerf's, start and "
            f"report included, {about}",
            peer_name=f"AIPerf {aiperf.VERSION}",
            peer_seconds=float(
                np.median([t["cpu_per_request"] for _, (_, t) in pairs])
            ),
            our_seconds=float(np.median([o["cpu_per_request"] for (_, o), _ in pairs])),
        )


def _run(
    streams: int, tokens: int = _TOKENS
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the server's times in seconds, and the client's with its cores used."""
    seconds = _answer_seconds(tokens)
    with _server(tokens) as (address, truth):
        ours = _ours(address, streams / seconds, _RUN_ANSWERS * seconds)
    return truth, ours


def _answer_seconds(tokens: int) -> float:
    return _FIRST_SECONDS + (tokens - 1) / _TOKENS_PER_SECOND


def _peer(streams: int, tokens: int) -> tuple[dict[str, float], dict[str, float]]:
    """The same of AIPerf."""
    rate = streams / _answer_seconds(tokens)
    requests = round(_RUN_ANSWERS * streams)
    with _server(tokens) as (address, truth):
        found = aiperf.profile(address, rate=rate, requests=requests)
    answered = found["request_count"]["avg"]
    if answered != requests:
        raise RuntimeError(f"AIPerf has {answered} answers to {requests} requests")
    first, gap = found["time_to_first_token"], found["inter_token_latency"]
    return truth, {
        "first_p50": first["p50"] / 1e3,
        "first_p99": first["p99"] / 1e3,
        "gap_mean": gap["avg"] / 1e3,
        "tokens_per_second": found["output_token_throughput"]["avg"],
        "cpu_per_request": found["cpu_seconds"] / requests,
    }


@contextlib.contextmanager
def _server(tokens: int) -> Generator[tuple[str, dict[str, float]]]:
    """A server of such streams: its address, and its own times, filled in at its end."""
    server = subprocess.Popen(
        [
            *(sys.executable, str(_SERVER)),
            *map(str, (_TOKENS_PER_SECOND, tokens, _FIRST_SECONDS)),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    told: dict[str, float] = {}
    try:
        yield f"127.0.0.1:{server.stdout.readline().strip()}", told
    finally:
        server.terminate()
        said, _ = server.communicate(timeout=60)
    truth = json.loads(said.splitlines()[-1])
    told |= {f"{k}_{q}": v for k, one in truth.items() for q, v in one.items()}


def _ours(address: str, rate: float, seconds: float) -> dict[str, float]:
    before = aiperf.cpu_seconds()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.json"
        command = [COMMAND, "load", "run", "--quiet", "--protocol", "openai-chat"]
        command += ["--address", address, "--model", "chatty", "--timeout", "60"]
        command += ["--profile", "constant", "--rate", f"{rate:g}"]
        command += ["--duration", f"{seconds:g}", "--json", str(path)]
        subprocess.run(command, check=False, timeout=seconds + 180, capture_output=True)
        result = result_file.read(path)
    requests = result.requests
    if requests.count(Outcome.OK) != len(requests):
        raise RuntimeError(f"{result.errors}; {result.verdict}")
    first = requests.first - requests.sent
    gaps = result.between_responses
    return {
        **{f"first_{name}": _quantile(first, q) for name, q in _QUANTILES},
        **{f"gap_{name}": float(gaps.quantile(q) or 0.0) for name, q in _QUANTILES},
        "gap_mean": float(np.nanmean(requests.mean_gap)),
        "tokens_per_second": result.per_second(requests.tokens),
        "cpu_per_request": (aiperf.cpu_seconds() - before) / len(requests),
        "cores": result.sender_cpu_seconds / result.duration_seconds,
    }


def _quantile(values: NDArray[np.float64], q: float) -> float:
    return float(np.quantile(values, q))
