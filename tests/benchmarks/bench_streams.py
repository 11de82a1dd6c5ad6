"""Streamed answers: how many one core can time, and how well."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

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
_RUN_ANSWERS = 2.5
"""Length of a run in answers."""

_QUANTILES = (("p50", 0.5), ("p99", 0.99))
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


def _run(streams: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return the server's times in seconds, and the client's with its cores used."""
    seconds = _FIRST_SECONDS + (_TOKENS - 1) / _TOKENS_PER_SECOND
    with _server() as (address, truth):
        ours = _ours(address, streams / seconds, _RUN_ANSWERS * seconds)
    return truth, ours


@contextlib.contextmanager
def _server() -> Generator[tuple[str, dict[str, float]]]:
    """A server of such streams: its address, and its own times, filled in at its end."""
    server = subprocess.Popen(
        [
            *(sys.executable, str(_SERVER)),
            *map(str, (_TOKENS_PER_SECOND, _TOKENS, _FIRST_SECONDS)),
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
        "cores": result.sender_cpu_seconds / result.duration_seconds,
    }


def _quantile(values: NDArray[np.float64], q: float) -> float:
    return float(np.quantile(values, q))
