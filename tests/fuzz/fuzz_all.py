"""Fuzzes every target in turn and keeps what was found (`make fuzz`).

    python tests/fuzz/fuzz_all.py --seconds 210

The corpora in tests/data/fuzz grow by inputs that reach what nothing before did.
A line on each target goes into record.jsonl there. A crash ends with exit 1 and leaves
its input in the target's folder, where test_corpora.py replays it from then on.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from fuzz_targets import DATA, TARGETS, folders

HERE = Path(__file__).parent
MOST_BYTES = 4096
"""A larger input is slow to try and no find for a corpus that tests replay."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--only", default="", help="part of the targets' names")
    arguments = parser.parse_args()
    names = [name for name in TARGETS if arguments.only in name]
    lines = [fuzzed(name, arguments.seconds) for name in names]
    with (DATA / "fuzz" / "record.jsonl").open("a", encoding="utf-8") as record:
        for line in lines:
            record.write(json.dumps(line) + "\n")
            print(json.dumps(line))
    return 1 if any(line["crashes"] for line in lines) else 0


def fuzzed(target: str, seconds: int) -> dict[str, object]:
    """Fuzz one target; what came of it."""
    corpus, *seeds = folders(target)
    before = {file.name for file in corpus.iterdir()}
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found"
        found.mkdir()
        started = time.monotonic()
        done = run(
            target,
            *map(str, (found, corpus, *seeds)),
            f"-max_total_time={seconds}",
            f"-max_len={MOST_BYTES}",
            f"-artifact_prefix={corpus}/",
            "-print_final_stats=1",
        )
        took = time.monotonic() - started
        # Of all that is new only what adds to the corpus there is.
        run(target, str(corpus), str(found), "-merge=1", f"-max_len={MOST_BYTES}")
    return {
        "target": target,
        "seconds": round(took),
        "runs": int(last(r"stat::number_of_executed_units:\s*(\d+)", done)),
        "coverage": int(last(r"\bcov: (\d+)", done)),
        "inputs": len(list(corpus.iterdir())),
        "new": len({file.name for file in corpus.iterdir()} - before),
        "crashes": sorted(
            file.name
            for file in corpus.iterdir()
            if file.name not in before
            and file.name.startswith(("crash-", "timeout-", "oom-", "leak-"))
        ),
        "day": time.strftime("%Y-%m-%d", time.gmtime()),
        "atheris": version("atheris"),
        "python": sys.version.split()[0],
    }


def run(target: str, *arguments: str) -> str:
    """libFuzzer's own log; it ends with another status than 0 at a crash."""
    command = [sys.executable, str(HERE / "fuzz.py"), target, *arguments]
    return subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    ).stdout


def last(pattern: str, text: str) -> str:
    found = re.findall(pattern, text)
    assert found, f"{pattern} is not in\n{text[-2000:]}"
    return found[-1]


if __name__ == "__main__":
    sys.exit(main())
