"""Runs one target under atheris (libFuzzer).

    python tests/exporter/taps/mirroring/fuzz/fuzz.py http CORPUS -max_total_time=300

CORPUS is a folder that grows; start it with tests/data/mirror/fuzz/TARGET. A crash leaves
a file `crash-…`: put it there, where test_mirror_corpus.py replays it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parent))

with atheris.instrument_imports(
    include=["exporter.taps.mirroring", "exporter.features.traces"]
):
    from targets import TARGETS

if __name__ == "__main__":
    name = sys.argv.pop(1)
    atheris.Setup(sys.argv, TARGETS[name])
    atheris.Fuzz()
