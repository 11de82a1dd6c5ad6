"""Names of source files: unique, so that a name alone says which file is meant."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = (
    *("exporter", "drift", "loadtests", "pages", "grafana"),
    *("tests/support", "tests/benchmarks"),
)
# One in each package, with the same role in all of them.
CONVENTIONAL = {"__init__.py", "cli.py", "conftest.py", "errors.py", "settings.py"}


def test_no_two_source_files_have_the_same_name() -> None:
    files = defaultdict(list)
    for folder in SOURCES:
        for file in (ROOT / folder).rglob("*.py"):
            files[file.name].append(str(file.relative_to(ROOT)))
    assert len(files) > 400
    repeated = {
        name: places
        for name, places in files.items()
        if len(places) > 1 and name not in CONVENTIONAL
    }
    assert repeated == {}
