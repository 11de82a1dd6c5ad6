"""Runs one target under atheris (libFuzzer).

    python tests/fuzz/fuzz.py otlp_json CORPUS -max_total_time=300

CORPUS is a folder that grows; start it with tests/data/fuzz/TARGET. A crash leaves a file
`crash-…`: put it there, where test_corpora.py replays it.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parent))

READERS = [
    "exporter.config",
    "exporter.features.golden.golden_formats",
    "exporter.features.runs",
    "exporter.features.spc",
    "exporter.features.traces",
    "exporter.taps",
    "exporter.web.web_config",
    "json",
    "exporter.openai.completions",
    "exporter.triton.event_stream",
    "loadtests.chaos.undoing.undo_journal",
    "loadtests.engine.http_messages",
    "loadtests.result_file",
]

LEAKING = ["exporter.taps.foreign_json"]
"""Compares arrays, of which atheris keeps every result: 2 GB after a minute."""

with atheris.instrument_imports(include=READERS, exclude=LEAKING):
    from fuzz_targets import TARGETS

if __name__ == "__main__":
    name = sys.argv.pop(1)
    # libFuzzer starts itself again, through a shell, to merge.
    sys.argv[0] = shlex.join([sys.executable, __file__, name])
    atheris.Setup(sys.argv, TARGETS[name])
    atheris.Fuzz()
