"""Mutation score: the share of small wrong changes to the code that its fast tests notice.

    make mutants ARGS="[--area slo] [--sample 25] [--seed 1] [--minutes 30] [--discard]"

Mutants are made by cosmic-ray, one per place in the code at most (`mutant_places.py`, with
the places that are left out and why). Each is tested in a copy of the working tree by the
tests that run its statement (`mutant_tests.py`).
"""

from __future__ import annotations

import argparse
import datetime as dt
import itertools
import json
import platform
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mutant_places import LEFT_OUT, sampled
from mutant_tests import ROOT, AreaTests, Copy
from run_benchmarks import hardware, revision

if TYPE_CHECKING:
    from mutant_places import Mutant

HERE: Final = Path(__file__).resolve().parent
GOAL: Final = 0.92


@dataclass(frozen=True)
class Area:
    """Code, and the fast tests that are to notice what is wrong in it."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]


AREAS: Final = {
    "catalogue": Area(
        ("exporter/samples.py", "exporter/output/exposition.py", "exporter/catalogue/*.py"),
        ("tests/exporter/output/test_exposition.py", "tests/exporter/output/test_exposition_page.py",
         "tests/exporter/output/test_series_lives.py", "tests/contracts/test_catalogue.py",
         "tests/contracts/test_judged_metrics.py", "tests/contracts/test_probe_outcomes.py"),
    ),
    "spine": Area(
        ("exporter/histograms/histogram.py", "exporter/histograms/quantiles.py", "exporter/histograms/buckets.py",
         "exporter/access/own_traffic.py", "exporter/access/inventory.py", "exporter/runtime/health.py",
         "exporter/features/statistics/statistics_collector.py", "exporter/features/statistics/production_counts.py",
         "exporter/features/statistics/own_share.py", "exporter/own_requests/reach.py"),
        ("tests/exporter/histograms", "tests/exporter/access/test_own_traffic.py",
         "tests/exporter/access/test_inventory.py", "tests/exporter/features/statistics",
         "tests/exporter/own_requests/test_reach.py", "tests/exporter/runtime/test_health.py"),
    ),
    "slo": Area(
        ("exporter/features/slo/*.py",),
        ("tests/exporter/features/slo", "tests/exporter/config/test_config.py"),
    ),
    "energy": Area(
        ("exporter/features/energy/*.py", "exporter/features/energy/sources/*.py"),
        ("tests/exporter/features/energy",),
    ),
    "spc": Area(
        ("exporter/features/spc/*.py", "drift/numerics/normal.py", "drift/numerics/run_length.py"),
        ("tests/exporter/features/spc", "tests/drift/numerics"),
    ),
    "drift": Area(
        ("drift/*.py", "drift/alarms/*.py"), ("tests/drift",)
    ),
    "capacity": Area(
        ("loadtests/capacity/*.py", "loadtests/distributed/coordinator.py",
         "loadtests/engine/recorder.py"),
        ("tests/loadtests/test_capacity_statistics.py", "tests/loadtests/test_capacity_start.py",
         "tests/loadtests/test_capacity_search.py",
         "tests/loadtests/test_capacity_page.py", "tests/loadtests/test_slo.py",
         "tests/loadtests/test_load_result.py",
         "tests/loadtests/test_capacity_levels.py",
         "tests/exporter/features/runs/test_run_board.py",
         "tests/loadtests/test_locust_coordinator.py"),
    ),
    "guards": Area(
        ("exporter/web/basic_auth.py", "exporter/web/web_config.py", "exporter/network/connections.py",
         "exporter/network/admission.py",
         "exporter/taps/mirroring/intake.py"),
        ("tests/exporter/web/test_basic_auth.py", "tests/exporter/web/test_web_config.py",
         "tests/exporter/web/test_unread_scrapes.py",
         "tests/exporter/network/test_admission.py", "tests/exporter/network/test_connections.py",
         "tests/exporter/network/test_parse_slot.py", "tests/exporter/taps/test_tap.py",
         "tests/exporter/taps/mirroring"),
    ),
}  # fmt: skip


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Test the sampled mutants, the areas in turn, until the time is over."""
    names = options.area or list(AREAS)
    found = {name: _Found() for name in names}
    until = time.monotonic() + 60 * options.minutes
    samples = []
    for name in names:
        mutants, found[name].left_out = sampled(
            _codes(AREAS[name]), options.sample, _rng(options, name)
        )
        samples.append([(name, one) for one in mutants])
    with tempfile.TemporaryDirectory() as folder, Copy(Path(folder)) as copy:
        tests: dict[str, AreaTests] = {}
        turns = itertools.chain(*itertools.zip_longest(*samples))
        for name, one in filter(None, turns):
            if time.monotonic() > until:
                break
            if name not in tests:
                try:
                    tests[name] = AreaTests(
                        copy, AREAS[name].tests, 60 * options.minutes
                    )
                except RuntimeError as error:
                    sys.exit(f"the tests of {name}: {error}; mend them first")
            verdict = tests[name].judge(one)
            found[name].add(verdict, one)
            print(f"{verdict:8} {one.name}", flush=True)
    return {name: one.scored() for name, one in found.items()}


class _Found:
    """The results of an area's mutants."""

    def __init__(self) -> None:
        self.left_out: Counter[str] = Counter()
        self._mutants: dict[str, list[str]] = {
            "killed": [], "survived": [], "unclear": [], "equivalent": []
        }  # fmt: skip

    def add(self, verdict: str, one: Mutant) -> None:
        same = verdict == "survived" and one.is_equivalent
        self._mutants["equivalent" if same else verdict].append(one.name)

    def scored(self) -> dict[str, Any]:
        """The part of the results; what is unclear or equivalent counts on neither side."""
        killed, survived = (len(self._mutants[k]) for k in ("killed", "survived"))
        return {
            "killed": killed,
            "of": killed + survived,
            "left_out": dict(sorted(self.left_out.items())),
            "unclear": self._mutants["unclear"],
            "equivalent": self._mutants["equivalent"],
            "survived": self._mutants["survived"],
        }


def _codes(area: Area) -> dict[str, str]:
    return {
        str(path.relative_to(ROOT)): path.read_text("utf-8")
        for pattern in area.sources
        for path in sorted(ROOT.glob(pattern))
    }


def _rng(options: argparse.Namespace, name: str) -> random.Random:
    return random.Random(f"{options.seed} {name}")  # noqa: S311 - nothing to hide


def kept(
    options: argparse.Namespace, measured: str, areas: dict[str, Any]
) -> dict[str, Any]:
    """Return the results of the revision `measured`, and write them unless discarded.

    Areas that were measured one by one, of the same revision and with the same seed, make
    one file.
    """
    now = dt.datetime.now(dt.UTC)
    name = f"{now:%Y-%m-%d}-{version('tritonwatch')}-mutants-seed-{options.seed}"
    path = HERE / "results" / f"{name}.json"
    same = {"revision": measured, "seed": options.seed, "sample": options.sample}
    if path.exists() and not options.discard:
        earlier = json.loads(path.read_text("utf-8"))
        if earlier.items() >= same.items():
            areas = earlier["areas"] | areas
    killed, of = (
        sum(found[key] for found in areas.values()) for key in ("killed", "of")
    )
    document = {
        "at": now.isoformat(timespec="seconds"),
        "hardware": hardware(),
        "versions": {n: version(n) for n in ("tritonwatch", "cosmic-ray", "pytest")}
        | {"python": platform.python_version()},
        **same,
        "minutes": options.minutes,
        "left_out": LEFT_OUT,
        "goal": GOAL,
        "score": round(killed / of, 4) if of else 0.0,
        "killed": killed,
        "of": of,
        "areas": areas,
    }
    if not options.discard:
        path.write_text(json.dumps(document, indent=2) + "\n", "utf-8")
    return document


def main() -> int:
    """Measure, print and keep; 1 where the score is below the goal."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--area", action="append", choices=AREAS)
    parser.add_argument("--sample", type=int, default=25, help="mutants of each area")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--discard", action="store_true", help="keep no file")
    options = parser.parse_args()
    found = kept(options, revision(), measure(options))
    print(json.dumps({key: found[key] for key in ("score", "goal", "killed", "of")}))
    return 0 if found["score"] >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
