"""The two reports in loadtests/README.md, from runs on the real Triton.

    python tests/benchmarks/load_example.py [--write | --quick] [--only run|capacity]

Tries again while a report is INVALID, `--tries` times in all; only a VALID one is written
into the page, between its two marks. Nothing in between is written by hand.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from exporter.triton.embedded import EmbeddedTriton

PAGE = ROOT / "loadtests" / "README.md"
MODELS = ("tests/data/models/double", "deploy/models/slow")
COMMANDS = {
    "run": 'load run --quiet --model double --profile poisson --rate 50 --duration 30 --slo "p99<50ms,errors<0.1%"',
    "capacity": 'load capacity --quiet --model slow --slo "p99<60ms,errors<0.1%"',
}
# As brief as shows that all of it works; such a report is not written.
QUICK = {
    "run": "--duration 3",
    "capacity": "--budget 8 --run-seconds 2 --repetitions 3",
}
_TRIES = 4
_TIMEOUT_SECONDS = 300
_WIDTH = 98


def marks(name: str) -> tuple[str, str]:
    """What stands before and after a report in the page."""
    begin = f"<!-- {name}: by tests/benchmarks/load_example.py -->"
    return begin, f"<!-- {name}: end -->"


def report(name: str, triton: EmbeddedTriton, *, quick: bool) -> str | None:
    """What the command says; None while it is INVALID."""
    command = [str(Path(sys.executable).with_name("tritonwatch"))]
    command += [*shlex.split(COMMANDS[name]), "--address", triton.grpc]
    command += shlex.split(QUICK[name]) if quick else []
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT_SECONDS,
    )
    sys.stderr.write(done.stdout + done.stderr)
    if done.returncode not in {0, 1, 3}:
        raise SystemExit(f"{shlex.join(command)} ended with {done.returncode}")
    return done.stdout if done.returncode in {0, 1} else None


def written(page: str, name: str, told: str) -> str:
    """The page with the report between its marks, as code, its lines broken to fit."""
    begin, end = marks(name)
    lines = [part for line in told.rstrip().splitlines() for part in broken(line)]
    block = "\n".join(f"    {line}".rstrip() for line in lines)
    pattern = re.escape(begin) + ".*?" + re.escape(end)
    found, count = re.subn(
        pattern, lambda _: f"{begin}\n\n{block}\n\n{end}", page, flags=re.DOTALL
    )
    if count != 1:
        raise SystemExit(f"found {count} places for {name} in {PAGE}; want one")
    return found


def broken(line: str) -> list[str]:
    """A line of the report in lines that fit the page, indented alike."""
    indent = " " * (len(line) - len(line.lstrip()))
    parts = []
    while len(line) > _WIDTH and " " in line[len(indent) : _WIDTH].strip():
        at = line.rindex(" ", len(indent), _WIDTH)
        parts.append(line[:at])
        line = indent + line[at + 1 :]
    return [*parts, line]


def main() -> int:
    """Make the reports; 1 where one of them never became VALID."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--write", action="store_true")
    how.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=sorted(COMMANDS))
    parser.add_argument("--tries", type=int, default=_TRIES, metavar="N")
    options = parser.parse_args()
    missing = 0
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder) / "models"
        for model in MODELS:
            shutil.copytree(ROOT / model, repository / Path(model).name)
        with EmbeddedTriton(repository) as triton:
            for name in [options.only] if options.only else COMMANDS:
                told = None
                for turn in range(1 if options.quick else options.tries):
                    time.sleep(5 if turn else 0)
                    told = report(name, triton, quick=options.quick)
                    if told is not None:
                        break
                if told is None:
                    missing += not options.quick
                elif options.write:
                    page = written(PAGE.read_text("utf-8"), name, told)
                    PAGE.write_text(page, "utf-8")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
