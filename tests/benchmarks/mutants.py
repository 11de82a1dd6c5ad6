"""Mutation score: the share of small wrong changes to the code that its fast tests notice.

    make mutants ARGS="[--area slo] [--sample 25] [--seed 1] [--minutes 30] [--discard]"

Mutants are made by cosmic-ray, one per place in the code at most. Each is tested in a copy
of the working tree.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import datetime as dt
import itertools
import json
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator
from parso.python.tree import Keyword
from run import hardware, revision

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parents[2]
HERE: Final = Path(__file__).resolve().parent
GOAL: Final = 0.92
FAST: Final = "not triton and not slow and not bench and not exhaustive"
COPIED: Final = ("exporter", "drift", "loadtests", "tests", "deploy", "grafana")
SECONDS_MORE: Final = 30.0
"""A mutant is stopped, as one that hangs, after three times the tests' own time and that."""

_OPPOSITES: Final = {
    "Binary": ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Div", "Mod_Mul",
               "Pow_Mul", "BitOr_BitAnd", "BitAnd_BitOr"),
    "Comparison": ("Eq_NotEq", "NotEq_Eq", "Lt_LtE", "Lt_GtE", "LtE_Lt", "LtE_Gt",
                   "Gt_GtE", "Gt_LtE", "GtE_Gt", "GtE_Lt", "Is_IsNot", "IsNot_Is"),
    "Unary": ("USub_UAdd", "Delete_Not"),
}  # fmt: skip
_OPERATORS: Final = (
    *(
        f"Replace{k}Operator_{pair}"
        for k, pairs in _OPPOSITES.items()
        for pair in pairs
    ),
    *("ReplaceAndWithOr", "ReplaceOrWithAnd", "AddNot", "NumberReplacer"),
    *("ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ZeroIterationForLoop"),
    *("ReplaceBreakWithContinue", "ReplaceContinueWithBreak"),
)


@dataclass(frozen=True)
class Area:
    """Code, and the fast tests that are to notice what is wrong in it."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]


AREAS: Final = {
    "catalogue": Area(
        ("exporter/samples.py", "exporter/output/exposition.py", "exporter/catalogue/*.py"),
        ("tests/exporter/output/test_exposition.py", "tests/exporter/output/test_exposition_page.py",
         "tests/contracts/test_catalogue.py"),
    ),
    "spine": Area(
        ("exporter/histograms/histogram.py", "exporter/histograms/quantiles.py", "exporter/histograms/buckets.py",
         "exporter/access/own_traffic.py", "exporter/access/inventory.py", "exporter/runtime/health.py",
         "exporter/features/statistics/statistics_collector.py", "exporter/features/statistics/production_counts.py"),
        ("tests/exporter/histograms", "tests/exporter/histograms/test_buckets.py",
         "tests/exporter/histograms/test_quantiles.py", "tests/exporter/access/test_own_traffic.py",
         "tests/exporter/access/test_inventory.py", "tests/exporter/features/statistics",
         "tests/exporter/runtime/test_health.py", "tests/exporter/histograms/test_windowed_histogram.py"),
    ),
    "slo": Area(("exporter/features/slo/*.py",), ("tests/exporter/features/slo",)),
    "energy": Area(
        ("exporter/features/energy/*.py", "exporter/features/energy/sources/*.py"),
        ("tests/exporter/features/energy",),
    ),
    "spc": Area(
        ("exporter/features/spc/*.py", "exporter/numerics/normal.py", "exporter/numerics/run_length.py"),
        ("tests/exporter/features/spc", "tests/exporter/numerics"),
    ),
    "drift": Area(
        ("drift/*.py", "drift/alarms/*.py", "drift/statistics/*.py"), ("tests/drift",)
    ),
    "capacity": Area(
        ("loadtests/capacity/*.py", "loadtests/distributed/tally.py",
         "loadtests/engine/recorder.py"),
        ("tests/loadtests/test_capacity_statistics.py", "tests/loadtests/test_capacity_start.py",
         "tests/loadtests/test_capacity_page.py", "tests/loadtests/test_slo.py",
         "tests/loadtests/test_load_result.py",
         "tests/loadtests/test_load_locust.py::test_every_time_of_a_request_is_tallied_from_where_it_begins"),
    ),
    "guards": Area(
        ("exporter/web/basic_auth.py", "exporter/web/web_config.py", "exporter/network/connections.py",
         "exporter/network/admission.py",
         "exporter/taps/mirroring/mirror_sampling.py"),
        ("tests/exporter/web/test_basic_auth.py", "tests/exporter/web/test_web_config.py",
         "tests/exporter/taps/mirroring"),
    ),
}  # fmt: skip


class DeleteStatement(Operator):
    """Leave out a call whose value nobody takes, or an augmented assignment."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        """Return the one place where this can be done to `node`."""
        if node.type != "simple_stmt":
            return
        first = node.children[0]
        called = first.type == "atom_expr" and first.children[-1].type == "trailer"
        added = first.type == "expr_stmt" and first.children[1].type == "operator"
        added = added and first.children[1].value not in {"=", ":"}
        if (called and first.children[-1].children[0].value == "(") or added:
            yield first.start_pos, first.end_pos

    def mutate(self, node: Any, index: int) -> Any:  # noqa: ARG002 - there is but one
        """Replace the statement by `pass`."""
        first = node.children[0]
        node.children[0] = Keyword(
            "pass", first.start_pos, first.get_first_leaf().prefix
        )
        return node

    @classmethod
    def examples(cls) -> tuple[()]:
        """None: the tests of cosmic-ray ask for these."""
        return ()


@dataclass(frozen=True)
class Mutant:
    """A changed line of a file."""

    path: str
    line: int
    before: str
    after: str
    code: str

    @property
    def name(self) -> str:
        """Name in the results."""
        return f"{self.path}: {self.before} -> {self.after}"


def places(code: str) -> dict[tuple[int, int], list[tuple[Operator, int]]]:
    """Where mutants can be made: for each place the operators and their occurrence."""
    operators = [get_operator(f"core/{name}")() for name in _OPERATORS]
    counts: defaultdict[Operator, int] = defaultdict(int)
    found: defaultdict[tuple[int, int], list[tuple[Operator, int]]] = defaultdict(list)
    for node in ast_nodes(get_ast(code)):
        for operator in (*operators, _DELETE):
            for start, _ in operator.mutation_positions(node):
                found[start].append((operator, counts[operator]))
                counts[operator] += 1
    return found


_DELETE: Final = DeleteStatement()


class _Bare(ast.NodeTransformer):
    """Without annotations, which are never evaluated."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - ast asks for this name

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(value=None)
        return self.generic_visit(node)


def bare(code: str) -> str:
    """Return what of the code is run."""
    return ast.dump(_Bare().visit(ast.parse(code)))


def mutant(path: str, code: str, operator: Operator, occurrence: int) -> Mutant | None:
    """Return the mutant, None where nothing that is run would change."""
    changed = mutate_code(code, operator, occurrence)
    if changed is None or changed == code:
        return None
    with contextlib.suppress(SyntaxError):
        if bare(changed) != bare(code):
            pairs = itertools.zip_longest(code.splitlines(), changed.splitlines())
            for line, (before, after) in enumerate(pairs, 1):
                if before != after:
                    if "TYPE_CHECKING" in before or "@dataclass" in before:
                        return None
                    texts = [(text or "").strip() for text in (before, after)]
                    return Mutant(path, line, *texts, changed)
    return None


def sampled(area: Area, number: int, rng: random.Random) -> list[Mutant]:
    """Return so many mutants, each in a place of its own."""
    codes = {
        str(path.relative_to(ROOT)): path.read_text("utf-8")
        for pattern in area.sources
        for path in sorted(ROOT.glob(pattern))
    }
    candidates = [
        (path, operators)
        for path, code in codes.items()
        for _, operators in sorted(places(code).items())
    ]
    rng.shuffle(candidates)
    made = (mutant(p, codes[p], *rng.choice(operators)) for p, operators in candidates)
    return list(itertools.islice(filter(None, made), number))


class Copy:
    """The working tree in a folder of its own, where mutants are tested."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ignored = shutil.ignore_patterns("__pycache__", "results")
        for name in COPIED:
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        for path in ROOT.iterdir():
            if path.is_file() and path.name != ".git":
                shutil.copy(path, folder)

    def passes(self, area: Area, limit_seconds: float) -> bool:
        """Whether the area's fast tests pass within the limit."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", FAST, *area.tests]
        with subprocess.Popen(
            [*command, "-p", "no:cacheprovider"],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(self.folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            try:
                return process.wait(limit_seconds) == 0
            except subprocess.TimeoutExpired:
                return False
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, 9)

    @contextlib.contextmanager
    def mutated(self, one: Mutant) -> Iterator[None]:
        """The tree with this mutant in it."""
        file = self.folder / one.path
        original = file.read_text("utf-8")
        file.write_text(one.code, "utf-8")
        try:
            yield
        finally:
            file.write_text(original, "utf-8")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Test the sampled mutants, the areas in turn, until the time is over."""
    names = options.area or list(AREAS)
    until = time.monotonic() + 60 * options.minutes
    outcomes: dict[str, dict[str, list[Any]]] = {
        name: {"killed": [], "survived": []} for name in names
    }
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder))
        limits = {}
        for name in names:
            started = time.monotonic()
            if not copy.passes(AREAS[name], 60 * options.minutes):
                sys.exit(f"the tests of {name} fail without a mutant; mend them first")
            limits[name] = 3 * (time.monotonic() - started) + SECONDS_MORE
        samples = [
            [(n, one) for one in sampled(AREAS[n], options.sample, _rng(options, n))]
            for n in names
        ]
        for name, one in filter(
            None, itertools.chain(*itertools.zip_longest(*samples))
        ):
            if time.monotonic() > until:
                break
            found = outcomes[name]
            with copy.mutated(one):
                survived = copy.passes(AREAS[name], limits[name])
            found["survived" if survived else "killed"].append(
                f"{one.line}: {one.name}"
            )
            mark = "SURVIVED" if survived else "killed"
            print(f"{mark:8} {one.path}:{one.line}: {one.before} -> {one.after}")
            sys.stdout.flush()
    return {name: _scored(found) for name, found in outcomes.items()}


def _rng(options: argparse.Namespace, name: str) -> random.Random:
    return random.Random(f"{options.seed} {name}")  # noqa: S311 - nothing to hide


def _scored(found: dict[str, list[Any]]) -> dict[str, Any]:
    killed, survived = len(found["killed"]), len(found["survived"])
    return {
        "killed": killed,
        "of": killed + survived,
        "survived": found["survived"],
    }


def main() -> int:
    """Measure, print and keep; 1 where the score is below the goal."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--area", action="append", choices=AREAS)
    parser.add_argument("--sample", type=int, default=25, help="mutants of each area")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--discard", action="store_true", help="keep no file")
    options = parser.parse_args()
    areas = measure(options)
    killed, of = (
        sum(found[key] for found in areas.values()) for key in ("killed", "of")
    )
    score = killed / of if of else 0.0
    now = dt.datetime.now(dt.UTC)
    document = {
        "at": now.isoformat(timespec="seconds"),
        "revision": revision(),
        "hardware": hardware(),
        "versions": {n: version(n) for n in ("tritonwatch", "cosmic-ray", "pytest")}
        | {"python": platform.python_version()},
        "seed": options.seed,
        "sample": options.sample,
        "minutes": options.minutes,
        "goal": GOAL,
        "score": round(score, 4),
        "killed": killed,
        "of": of,
        "areas": areas,
    }
    print(json.dumps({key: document[key] for key in ("score", "goal", "killed", "of")}))
    if not options.discard:
        part = "".join(f"-{name}" for name in options.area or ())
        name = f"{now:%Y-%m-%d}-{version('tritonwatch')}-mutants{part}.json"
        text = json.dumps(document, indent=2) + "\n"
        (HERE / "results" / name).write_text(text, "utf-8")
    return 0 if score >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
