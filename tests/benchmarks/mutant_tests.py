"""Runs an area's fast tests on a mutant, in a copy of the working tree."""

from __future__ import annotations

import ast
import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Self

import coverage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mutant_places import Mutant

ROOT: Final = Path(__file__).resolve().parents[2]
FAST: Final = "not triton and not slow and not bench and not exhaustive"
COPIED: Final = ("exporter", "drift", "loadtests", "pages", "tests", "deploy", "grafana",
                 "docs", ".ci")  # fmt: skip
SECONDS_MORE: Final = 30.0
"""A mutant is stopped, as one that hangs, after three times the tests' own time and that."""
_FAILED: Final = 1
_AT_IMPORT: Final = ""

Verdict = Literal["killed", "survived", "unclear"]


class Copy:
    """The working tree in a folder of its own, and a process that runs tests in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ignored = shutil.ignore_patterns("__pycache__", "results")
        for name in COPIED:
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        for path in ROOT.iterdir():
            if path.is_file() and path.name != ".git":
                shutil.copy(path, folder)
        # A file changed twice within a second at the same length would be taken for
        # unchanged: Python compares size and seconds.
        self._times = itertools.count(1_000_000_000, 2)
        server = str(Path(__file__).with_name("forked_tests.py"))
        self._server = subprocess.Popen(
            [sys.executable, "-P", server],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.terminate()
        self._server.communicate()

    def run(self, arguments: list[str], limit_seconds: float, more: str = "") -> int:
        """Return pytest's exit status, -1 after the limit."""
        common = ["-q", "-m", FAST, "-o", f"cache_dir={self.folder}/cache"]
        request = {
            "arguments": [*common, *arguments],
            "limit_seconds": limit_seconds,
            "more": [more] if more else [],
        }
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        status = json.loads(self._server.stdout.readline())
        return -1 if status is None else status

    @contextlib.contextmanager
    def mutated(self, one: Mutant) -> Iterator[None]:
        """The tree with this mutant in it."""
        file = self.folder / one.path
        original = file.read_text("utf-8")
        self._write(file, one.code)
        try:
            yield
        finally:
            self._write(file, original)

    def _write(self, file: Path, code: str) -> None:
        file.write_text(code, "utf-8")
        at = next(self._times)
        os.utime(file, (at, at))


class AreaTests:
    """The fast tests of an area, and which of them run which line.

    Measured without a mutant at first. Raises `RuntimeError` if they fail then.
    """

    def __init__(
        self, copy: Copy, tests: tuple[str, ...], limit_seconds: float
    ) -> None:
        self._copy = copy
        self._all = list(tests)
        shutil.rmtree(copy.folder / "cache", ignore_errors=True)
        data = copy.folder / "coverage"
        data.unlink(missing_ok=True)
        (copy.folder / ".coveragerc").write_text(f"[run]\ndata_file = {data}\n")
        packages = [f"--cov={name}" for name in ("exporter", "drift", "loadtests")]
        started = time.monotonic()
        arguments = ["-p", "pytest_cov", *packages, "--cov-context=test"]
        status = copy.run(
            [*arguments, "--cov-report=", *tests],
            limit_seconds,
            str(Path(coverage.__file__).parents[1]),
        )
        if status == _FAILED:  # a busy machine makes some fail once
            status = self._again(limit_seconds)
        if status:
            printed = (copy.folder / "tests.log").read_text("utf-8")[-4_000:]
            raise RuntimeError(f"{printed}\nthey fail without a mutant ({status})")
        self._limit = 3 * (time.monotonic() - started) + SECONDS_MORE
        self._lines = coverage.CoverageData(str(data))
        self._lines.read()
        self._contexts: dict[str, dict[int, list[str]]] = {}

    def judge(self, one: Mutant) -> Verdict:
        """Return whether the tests notice the mutant, and not only how busy the machine is.

        A test that fails has to fail again, alone, and to pass again without the mutant.
        Where tests hang or cannot begin, they have to pass without it.
        """
        arguments = self.reaching(one)
        shutil.rmtree(self._copy.folder / "cache", ignore_errors=True)
        with self._copy.mutated(one):
            status = self._copy.run(["-x", *arguments], self._limit)
            if status == 0 and arguments is not self._all:
                # Tests that start processes are not seen to run a statement.
                arguments = self._all
                status = self._copy.run(["-x", *arguments], self._limit)
            again = self._again(self._limit) if status == _FAILED else 0
        if status == 0:
            return "survived"
        if status == _FAILED:
            noticed = again == _FAILED and self._again(self._limit) == 0
        else:
            # It hangs, or a module with the mutant in it cannot be imported.
            noticed = self._copy.run(arguments, self._limit) == 0
        return "killed" if noticed else "unclear"

    def _again(self, limit_seconds: float) -> int:
        """The status of the tests that failed last, alone."""
        return self._copy.run(["-x", "--lf", "--lfnf=none", *self._all], limit_seconds)

    def reaching(self, one: Mutant) -> list[str]:
        """Return the tests that run the mutant's statement; all where none is seen to.

        What runs at import changes all that comes after it, and what no test runs may
        run in a process that one starts.
        """
        code = (self._copy.folder / one.path).read_text("utf-8")
        contexts = self._contexts.get(one.path)
        if contexts is None:
            path = str(self._copy.folder / one.path)
            contexts = self._contexts[one.path] = self._lines.contexts_by_lineno(path)
        found = {
            context.partition("|")[0].partition("[")[0]
            for line in statement_lines(code, one.line)
            for context in contexts.get(line, ())
        }
        if not found or _AT_IMPORT in found:
            return self._all
        return sorted(found)


def statement_lines(code: str, line: int) -> range:
    """Return the lines of the innermost statement around this one, without its body."""
    found = range(line, line + 1)
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.stmt) or not (
            node.lineno <= line <= (node.end_lineno or node.lineno)
        ):
            continue
        body = getattr(node, "body", None)
        end = body[0].lineno if body else (node.end_lineno or node.lineno) + 1
        if node.lineno <= line < max(end, node.lineno + 1):
            found = range(node.lineno, max(end, node.lineno + 1))
    return found
