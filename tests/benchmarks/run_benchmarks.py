"""Run the benchmarks: one JSON object a line on stdout, progress on stderr, all kept.

    python tests/benchmarks/run_benchmarks.py [--only PART] [--quick] [--strict] [--list]

A benchmark is a public function of a `bench_*.py` beside this file; README.md has the
convention.
"""

from __future__ import annotations

import argparse
import datetime as dt
import functools
import importlib
import importlib.metadata
import inspect
import json
import os
import platform
import re
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]

from figures import SEED, Figure, Skipped

from exporter.network import grpc_core  # noqa: F401 - before any benchmark imports grpc itself
from loadtests import surroundings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import ModuleType

EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2
DISTRIBUTIONS = (
    "tritonwatch",
    "numpy",
    "grpcio",
    "prometheus-client",
    "pydantic",
    "uvicorn",
    "urllib3",
)


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One function that measures."""

    name: str
    run: Callable[..., Any]

    def figures(self, *, quick: bool) -> Iterator[Figure]:
        """What it measures, one after the other."""
        takes_quick = "quick" in inspect.signature(self.run).parameters
        result = self.run(quick=quick) if takes_quick else self.run()
        if isinstance(result, dict):
            yield result
        else:
            yield from result


def discover(folder: Path) -> list[Benchmark]:
    """Every benchmark below `folder`, by name."""
    return [
        benchmark
        for path in sorted(folder.glob("bench_*.py"))
        for benchmark in _benchmarks(path.stem)
    ]


def _benchmarks(module_name: str) -> list[Benchmark]:
    part = module_name.removeprefix("bench_")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # noqa: BLE001 - reported in its turn, with the rest
        return [Benchmark(part, functools.partial(_fail, error))]
    return [Benchmark(f"{part}.{name}", item) for name, item in _functions(module)]


def _fail(error: Exception) -> Figure:
    raise error


def _functions(module: ModuleType) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, item in vars(module).items():
        own = inspect.isfunction(item) and item.__module__ == module.__name__
        if own and not name.startswith("_") and _callable_bare(item):
            yield name, item


def _callable_bare(function: Callable[..., Any]) -> bool:
    """Whether it can be called with nothing but `quick`."""
    parameters = inspect.signature(function).parameters.values()
    return all(p.default is not p.empty or p.name == "quick" for p in parameters)


def main(arguments: list[str] | None = None) -> int:
    """Run what was asked for; the value is the exit status."""
    options = _options(arguments)
    chosen = [b for b in discover(options.folder) if options.only in b.name]
    if options.list:
        print("\n".join(benchmark.name for benchmark in chosen))
        return EXIT_OK
    if not chosen:
        _say(f"no benchmark has {options.only!r} in its name; --list shows them")
        return EXIT_USAGE
    figures = list(_measured(chosen, quick=options.quick))
    if not options.discard:
        _say(f"kept in {_keep(options, figures)}")
    broken = any("error" in figure for figure in figures)
    missed = any(figure.get("ok") is False for figure in figures)
    return EXIT_FAILED if broken or (missed and options.strict) else EXIT_OK


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", metavar="PART", help="part of a name")
    parser.add_argument("--quick", action="store_true", help="few repetitions, to try")
    parser.add_argument("--strict", action="store_true", help="a missed goal is exit 1")
    parser.add_argument("--list", action="store_true", help="the names, run nothing")
    parser.add_argument("--discard", action="store_true", help="keep no file")
    parser.add_argument(
        "--folder", type=Path, default=HERE, help="where the bench_*.py are"
    )
    parser.add_argument(
        "--results", type=Path, default=HERE / "results", help="where to keep the file"
    )
    options = parser.parse_args(arguments)
    sys.path.insert(0, str(options.folder))
    return options


def _measured(chosen: Iterable[Benchmark], *, quick: bool) -> Iterator[Figure]:
    """Every figure of every benchmark, printed as it comes."""
    for benchmark in chosen:
        _say(f"{benchmark.name} …")
        started = time.monotonic()
        for figure in _outcome(benchmark, quick=quick):
            print(json.dumps(figure), flush=True)
            yield figure
        _say(f"{benchmark.name} took {time.monotonic() - started:.1f} s")


def _outcome(benchmark: Benchmark, *, quick: bool) -> Iterator[Figure]:
    nothing = {"name": benchmark.name, "value": None, "unit": "", "goal": None}
    try:
        yield from benchmark.figures(quick=quick)
    except Skipped as skipped:
        yield {**nothing, "ok": None, "skipped": str(skipped)}
    except Exception as error:  # noqa: BLE001 - one that breaks must not stop the rest
        traceback.print_exc()
        yield {**nothing, "ok": False, "error": f"{type(error).__name__}: {error}"}


def _keep(options: argparse.Namespace, figures: list[Figure]) -> Path:
    version = importlib.metadata.version("tritonwatch")
    now = dt.datetime.now(dt.UTC)
    # A part or a trial is no release's record and must not stand in its place.
    part = re.sub(r"[^a-z0-9]+", "-", options.only.lower()).strip("-")
    kind = "".join(f"-{word}" for word in (part, "quick" * options.quick) if word)
    path = options.results / f"{now:%Y-%m-%d}-{version}{kind}.json"
    document = {
        "at": now.isoformat(timespec="seconds"),
        "revision": revision(),
        "hardware": hardware(),
        "versions": {name: importlib.metadata.version(name) for name in DISTRIBUTIONS}
        | {"python": platform.python_version()},
        "seed": SEED,
        "quick": options.quick,
        "only": options.only,
        "figures": figures,
    }
    options.results.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n", "utf-8")
    return path


def hardware() -> dict[str, Any]:
    """The machine, and how busy it was just now."""
    return surroundings.hardware() | {"load_average": list(os.getloadavg())}


def revision() -> str:
    git = ["git", "-C", str(HERE), "describe", "--always", "--dirty"]
    found = subprocess.run(git, capture_output=True, text=True, check=False)
    return found.stdout.strip()


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
