"""Every parser of what others wrote, by the name of its corpus in tests/data/fuzz."""

from __future__ import annotations

from pathlib import Path

import file_targets
import mirror_targets
import page_targets
import stream_targets
import trace_targets

DATA = Path(__file__).parents[1] / "data"
TARGETS = {
    **trace_targets.TARGETS,
    **mirror_targets.TARGETS,
    **file_targets.TARGETS,
    **page_targets.TARGETS,
    **stream_targets.TARGETS,
}
SEEDS = {
    "records": ("traces/files", "traces/tensors", "traces/streamed_files"),
    "otlp_json": ("traces/otlp", "traces/streamed_otlp"),
    "otlp_protobuf": ("traces/otlp_protobuf",),
    "config": ("config/valid", "config/invalid"),
}
"""Real inputs besides the corpus, in tests/data."""


def folders(target: str) -> list[Path]:
    """Where the inputs of a target lie, its corpus first."""
    return [DATA / "fuzz" / target, *(DATA / seeds for seeds in SEEDS.get(target, ()))]
