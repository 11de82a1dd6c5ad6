"""Runs one target under atheris (libFuzzer).

    python tests/exporter/features/traces/fuzz/fuzz.py records CORPUS -max_total_time=300

CORPUS is a folder that grows; start it with tests/data/traces. A crash leaves a file
`crash-…`: put it into tests/data/traces/fuzz/TARGET, where test_corpus.py replays it.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parent))

with atheris.instrument_imports(include=["exporter.features.traces", "json"]):
    from targets import TARGETS

if __name__ == "__main__":
    name = sys.argv.pop(1)
    # libFuzzer starts itself again, through a shell, to merge.
    sys.argv[0] = shlex.join([sys.executable, __file__, name])
    atheris.Setup(sys.argv, TARGETS[name])
    atheris.Fuzz()
