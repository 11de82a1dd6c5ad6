"""The demo's configuration: options for Triton, and deploy/demo.yaml filled in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import yaml

from exporter.commands import golden_command
from exporter.commands.golden_command import Wanted

if TYPE_CHECKING:
    from pathlib import Path

    from exporter.triton.embedded import EmbeddedTriton

LATER_RATE: Final = 7
"""Trace rate once each model's p99 is known: a prime, with enough samples for five minutes."""
RECORDED: Final = "digits_fp32"
_TRACE_FILES: Final = "trace"
_LABEL: Final = "label"
_WITHOUT_TRACES: Final = frozenset({"availability", "signal"})
"""Kinds of objectives of the demo whose events do not come from traced requests."""


def trace_arguments(folder: Path, rate: int | None) -> tuple[str, ...]:
    """Triton's options: one request in `rate` is traced; 0 for none, None for all.

    To files: Triton 2.51 dies of so many traced requests, and sooner of spans sent.
    """
    if rate == 0:
        return ()
    return (
        f"--trace-config=triton,file={folder / _TRACE_FILES}",
        "--trace-config=triton,log-frequency=1",
        f"--trace-config=rate={rate or 1}",
        "--trace-config=level=TIMESTAMPS",
    )


def sidecar_settings(
    models: Path,
    folder: Path,
    triton: EmbeddedTriton,
    listen: dict[str, Any],
    *,
    traced: bool,
) -> dict[str, Any]:
    """Return deploy/demo.yaml with addresses and files; the sidecar's state is in `folder`."""
    deploy = models.parent
    base: dict[str, Any] = yaml.safe_load((deploy / "demo.yaml").read_text("utf-8"))
    files = {"path": str(folder / _TRACE_FILES), "owner": True}
    return {
        **base,
        "target": {"grpc": triton.grpc, "http": triton.http, "metrics": triton.metrics},
        "listen": listen,
        "log": {"level": "warning"},
        "collectors": [
            {**one, "otlp": None, "files": files} if one["kind"] == "traces" else one
            for one in base["collectors"]
            if traced or one["kind"] != "traces"
        ],
        "slos": [
            one for one in base["slos"] if traced or one["kind"] in _WITHOUT_TRACES
        ],
        "drift": [
            # The file speaks of its own folder, the demo runs in any.
            {
                **entry,
                "reference": str(deploy / entry["reference"]),
                "state": str(folder / "state"),
            }
            for entry in base["drift"]
        ],
        "probes": [
            _with_file(probe, deploy, folder, triton) for probe in base["probes"]
        ],
    }


def _with_file(
    probe: dict[str, Any], deploy: Path, folder: Path, triton: EmbeddedTriton
) -> dict[str, Any]:
    if "data" not in probe:
        return probe
    file = deploy / probe["data"]["file"]
    if probe["models"]["include"] == [RECORDED]:
        file = record_golden(file, folder / "golden.npz", triton)
    return {**probe, "data": {**probe["data"], "file": str(file)}}


def record_golden(held_out: Path, golden: Path, triton: EmbeddedTriton) -> Path:
    """Record the model's answers before its fault; return the golden file."""
    data = golden_command.settings_of(held_out, label=_LABEL)
    wanted = Wanted(None, triton.grpc, RECORDED, "", data)
    golden_command.record(wanted, golden, lambda _: None)
    return golden
