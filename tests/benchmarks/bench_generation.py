"""Streams, tokens and joules of production: those of tritonwatch and of the clients."""

from __future__ import annotations

import contextlib
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import figures
import numpy as np
from sidecar_process import require_triton, triton_settings
from sidecars import SidecarProcess
from slow_llm import slow_llm
from traced_tritons import files_of_five, traced

from exporter.access.own_traffic import REQUEST_ID_PREFIX
from exporter.features.traces import trace_records
from loadtests.execute import execute, prepared
from loadtests.result import Outcome
from loadtests.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Iterator

    from figures import Figure

    from exporter.triton.embedded import EmbeddedTriton

_USERS = (2, 4, 8)
_SECONDS = 8.0
_PROMPT, _ANSWER = 20, 40
_WINDOW_SECONDS = 1.0
_LLM = {"model": "llm", "version": "1"}
_JOULES = "triton_token_energy_joules"
_NOT_OF_MODELS = (
    "triton_idle_energy_joules_total",
    "triton_unattributed_energy_joules_total",
)
_QUANTILES = {"p50": 0.5, "p99": 0.99}


def books(*, quick: bool = False) -> Iterator[Figure]:
    """The demo's language model on a real Triton, at three loads, which probes ask meanwhile."""
    require_triton()
    for users in _USERS:
        runs = [_run(users) for _ in range(1 if quick else 3)]
        setup = (
            f"{users} users at once for {_SECONDS:g} s, prompts of {_PROMPT} and answers of "
            f"{_ANSWER} tokens over gRPC; median of n runs"
        )
        for name in runs[0]:
            shown, client = (
                np.array([run[name][place] for run in runs]) for place in (0, 1)
            )
            error, unit, goal, measured = _error(name, shown, client)
            yield figures.at_most(
                f"generation_{users}_users_{name}_error",
                unit=unit,
                goal=goal,
                client=float(np.median(client)),
                n=len(runs),
                measured=f"{measured}; {setup}",
                **figures.median(error.tolist()),
            )


def _error(name: str, shown: Any, client: Any) -> tuple[Any, str, float, str]:
    if "tokens" in name:
        what = "|tokens of production on the metrics page - tokens of the clients' answers|"
        return abs(shown - client), "tokens", 0.0, what
    if "joules" in name:
        what = (
            "joules for each output token x tokens of the clients' answers, with idle and "
            "unattributed energy, against the energy of the board"
        )
        return 100 * abs(shown / client - 1), "percent", 0.1, what
    goal = max(1.0, 30 * float(np.median(client)))
    what = "|traces - client's stamps| of a quantile; the goal is 3 % or 1 ms"
    return 1e3 * abs(shown - client), "ms", goal, what


def _run(users: int) -> dict[str, tuple[float, float]]:
    """Return what tritonwatch shows of one run, and what its client or the board had."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        (folder / "models").mkdir()
        repository, path = slow_llm(folder / "models"), folder / "trace.json"
        triton = stack.enter_context(traced(repository, *files_of_five(path)))
        scenario = _scenario(triton, users)
        # It tries one request, which is not the sidecar's to count.
        mix = prepared(scenario)
        sidecar = SidecarProcess(_config(triton), folder / "sidecar")
        stack.callback(sidecar.close)
        sidecar.wait_listening()
        sidecar.wait(
            lambda page: (
                _tokens(page, "output") == 0
                and page.value(_NOT_OF_MODELS[0]) is not None
            )
        )
        result = execute(scenario, mix)
        requests = result.requests
        assert requests.count(Outcome.OK) == len(requests), result.errors
        output, given = requests.tokens.sum(), len(requests) * _PROMPT
        sidecar.wait(
            lambda page: (
                _tokens(page, "output") >= output
                and _tokens(page, "input") >= given
                and page.value(_JOULES, **_LLM, basis="active") is not None
            )
        )
        # The energy of the last tokens is known a window later.
        time.sleep(3 * _WINDOW_SECONDS)
        page = sidecar.page()
        marks = [
            trace.responses
            for file in folder.glob("trace.json*")
            for trace in trace_records.parse(file.read_bytes()).traces
            if trace.responses and not trace.request_id.startswith(REQUEST_ID_PREFIX)
        ]
    # The request that was tried; the last file of five may not be written.
    assert abs(len(marks) - len(requests)) < 6, (len(marks), len(requests))
    each = page.value(_JOULES, **_LLM, basis="active") or 0.0
    others = sum(page.sum(name) for name in _NOT_OF_MODELS)
    board = page.sum("triton_host_energy_joules_total")
    firsts = [sent.first_seconds for sent in marks]
    gaps = [gap for sent in marks for gap in sent.gaps]
    seen = requests.first - requests.sent
    found: dict[str, tuple[float, float]] = {}
    for name, q in _QUANTILES.items():
        found[f"first_{name}"] = (
            float(np.quantile(firsts, q)),
            float(np.quantile(seen, q)),
        )
        between = result.between_responses.quantile(q) or 0.0
        found[f"gap_{name}"] = float(np.quantile(gaps, q)), between
    return found | {
        "input_tokens": (_tokens(page, "input"), given),
        "output_tokens": (_tokens(page, "output"), output),
        "joules": (each * output + others, board),
    }


def _tokens(page: Any, direction: str) -> float:
    found = page.value(
        "triton_tokens_total", **_LLM, direction=direction, source="backend"
    )
    return -1.0 if found is None else found


def _scenario(triton: EmbeddedTriton, users: int) -> Scenario:
    lengths = {
        "input_tokens": {"median": _PROMPT},
        "output_tokens": {"median": _ANSWER},
    }
    model = {"model": "llm", "prompts": lengths, "parameters": {"ignore_eos": True}}
    return Scenario.model_validate(
        {
            "target": {"protocol": "grpc", "address": triton.grpc},
            "models": [model],
            "profile": {
                "kind": "closed",
                "concurrency": users,
                "duration_seconds": _SECONDS,
            },
        }
    )


def _config(triton: EmbeddedTriton) -> dict[str, Any]:
    every = {"interval_seconds": 0.5}
    prompt = {"text_input": {"values": ["Why slow?"]}}
    # The tokens of a probe that was given up are unknown.
    probe = {"kind": "synthetic", "timeout_seconds": 30, **every}
    board = {"kind": "model", "idle_watts": 20, "full_watts": 80, "use": "busy"}
    return {
        "target": triton_settings(triton),
        "listen": {"address": "127.0.0.1", "port": 0},
        "collectors": [{"kind": kind, **every} for kind in ("server", "statistics")],
        "probes": [probe | {"overrides": {"llm": {"inputs": prompt}}}],
        "power": {
            **every,
            "window_seconds": _WINDOW_SECONDS,
            "rate_window_seconds": 600,
            "sources": [board],
        },
    }
