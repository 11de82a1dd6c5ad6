"""Tokens of production and their joules, beside the books of the clients and the board."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import figures
from llm_clients import Clients
from sidecar_process import MODELS, require_triton, triton_settings
from sidecars import SidecarProcess

from exporter.triton.embedded import EmbeddedTriton

if TYPE_CHECKING:
    from collections.abc import Iterator

    from figures import Figure
    from sidecars import Page

_LLM = {"model": "llm", "version": "1"}
_JOULES = "triton_token_energy_joules"
_ENERGY = "triton_model_energy_joules_total"
_NOT_OF_MODELS = (
    "triton_idle_energy_joules_total",
    "triton_unattributed_energy_joules_total",
)
_BOARD = "triton_host_energy_joules_total"
_WINDOW_SECONDS = 1.0


def books(*, quick: bool = False) -> Iterator[Figure]:
    """The demo's language model on a real Triton, which probes ask at the same time."""
    require_triton()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        shutil.copytree(MODELS / "llm", Path(folder) / "models" / "llm")
        triton = stack.enter_context(EmbeddedTriton(Path(folder) / "models"))
        sidecar = SidecarProcess(_config(triton), Path(folder) / "sidecar")
        stack.callback(sidecar.close)
        sidecar.wait_listening()
        sidecar.wait(lambda page: _counted(page, "output") == 0)
        clients = Clients(triton)
        for _ in range(5 if quick else 30):
            clients.ask(20, tokens=40)
        sidecar.wait(
            lambda page: (
                _counted(page, "output") >= clients.output
                and _counted(page, "input") >= clients.input
                and page.value(_JOULES, **_LLM, basis="active") is not None
            )
        )
        # What the last tokens took is in the books one window later.
        time.sleep(3 * _WINDOW_SECONDS)
        yield from _compared(sidecar.page(), clients)


def _compared(page: Page, clients: Clients) -> Iterator[Figure]:
    for direction, booked in (("input", clients.input), ("output", clients.output)):
        yield figures.at_most(
            f"tokens_{direction}_error",
            abs(_counted(page, direction) - booked),
            "tokens",
            0,
            n=booked,
            own_requests=page.value(
                "triton_own_requests_total", **_LLM, outcome="success"
            ),
            measured=f"|{direction} tokens of production - those that the clients' "
            "answers report|, while probes ask the same model",
        )
    each = page.value(_JOULES, **_LLM, basis="active") or 0.0
    energy = page.value(_ENERGY, **_LLM) or 0.0
    yield figures.at_most(
        "tokens_joules_balance_error",
        100 * abs(each * clients.output / energy - 1),
        "percent",
        0.1,
        n=clients.output,
        joules=energy,
        measured="joules for each output token x the tokens of the clients' answers, "
        "against the joules of the model; a board of 20 to 80 W by its use",
    )
    others = sum(page.sum(name) or 0.0 for name in _NOT_OF_MODELS)
    board = page.sum(_BOARD) or 0.0
    yield figures.at_most(
        "tokens_board_balance_error",
        100 * abs((each * clients.output + others) / board - 1),
        "percent",
        0.1,
        n=clients.output,
        joules=board,
        measured="joules for each output token x the tokens of the clients' answers + "
        "idle and unattributed joules, against the joules of the board",
    )


def _counted(page: Page, direction: str) -> float:
    found = page.value(
        "triton_tokens_total", **_LLM, direction=direction, source="backend"
    )
    return -1.0 if found is None else found


def _config(triton: EmbeddedTriton) -> dict[str, Any]:
    every = {"interval_seconds": 0.5}
    prompt = {"text_input": {"values": ["Why slow?"]}}
    return {
        "target": triton_settings(triton),
        "listen": {"address": "127.0.0.1", "port": 0},
        "collectors": [{"kind": kind, **every} for kind in ("server", "statistics")],
        "probes": [
            {"kind": "synthetic", **every, "overrides": {"llm": {"inputs": prompt}}}
        ],
        "power": {
            **every,
            "window_seconds": _WINDOW_SECONDS,
            "rate_window_seconds": 600,
            "sources": [
                {"kind": "model", "idle_watts": 20, "full_watts": 80, "use": "busy"}
            ],
        },
    }
