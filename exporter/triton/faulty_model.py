"""Writes models that start to fail, for a real Triton: see deploy/faults/README.md."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

from exporter.errors import EmbeddedTritonError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FaultName = Literal[
    "none",
    "zeros",
    "nan",
    "shifted_class",
    "stale",
    "garbage_text",
    "slow",
    "hang",
    "crash",
    "error",
    "stall",
]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a model: its kind, its start and its frequency."""

    fault: FaultName = "none"
    after_requests: int = 0
    """Requests answered honestly first, counted from when the fault was set."""
    after_responses: int = 0
    """Responses of each stream sent honestly first, of decoupled models and `error` or `stall`."""
    share: float = 1.0
    """Share of the rows that are struck; of the requests by `error` and `stall`."""
    shift: int = 1
    """Places by which `shifted_class` moves."""
    factor: float = 2.0
    """Factor on the model's own time, for `slow`."""
    delay_ms: float = 0.0
    """Further delay in milliseconds, for `slow`."""
    hang_seconds: float = 60.0
    """Seconds without an answer, for `hang` and `stall`."""
    seed: int = 0
    """Seed of the affected rows."""


def write_faulty_model(
    repository: Path,
    name: str,
    *,
    source: Path,
    fault: Fault = Fault(),
    versions: Sequence[str] = ("1",),
) -> Path:
    """Write model `name` into `repository`: the Python model `source` with a fault.

    Every version begins with `fault`. Returns the model's folder.

    Raises:
        EmbeddedTritonError: the model that wraps the original is not where it belongs.
    """
    wrapper = source.parents[1] / "faults" / "model.py"
    if not wrapper.is_file():
        raise EmbeddedTritonError(
            f"found no {wrapper}; models with faults are made in a checkout"
        )
    folder = repository / name
    for version in versions:
        place = folder / version
        shutil.copytree(source / "1", place)
        (place / "model.py").rename(place / "original.py")
        shutil.copy(wrapper, place / "model.py")
        set_fault(repository, name, fault, version=version)
    config = (source / "config.pbtxt").read_text("utf-8")
    if len(versions) > 1:
        config += "version_policy { all {} }\n"
    (folder / "config.pbtxt").write_text(config, "utf-8")
    return folder


def set_fault(repository: Path, name: str, fault: Fault, *, version: str = "1") -> None:
    """Switch a model written by `write_faulty_model` to `fault` at once."""
    file = repository / name / version / "fault.json"
    # As a whole: the model may read at any moment.
    written = file.with_suffix(".new")
    written.write_text(json.dumps(asdict(fault)), "utf-8")
    os.replace(written, file)  # noqa: PTH105 - says that it is one step
