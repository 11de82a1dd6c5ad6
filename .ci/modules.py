"""Print docs/design/modules.md: every module with the first sentence of its docstring."""

from __future__ import annotations

import ast
import subprocess
from itertools import groupby
from pathlib import Path

PACKAGES = ("exporter", "drift", "pages", "loadtests", "grafana")
HEAD = """# Modules

Every module of the project, by folder. `make generate` writes this page from the first lines of the modules' docstrings.
"""


def first_line(file: Path) -> str:
    """Return the first paragraph of a module's docstring as one line."""
    text = ast.get_docstring(ast.parse(file.read_bytes())) or ""
    return " ".join(text.partition("\n\n")[0].split()).replace("|", "\\|")


def page(root: Path) -> str:
    """Return the page for the files that git tracks."""
    listed = subprocess.run(
        ["git", "ls-files", "--", *(f"{package}/*.py" for package in PACKAGES)],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    parts = [HEAD]
    for folder, files in groupby(map(Path, sorted(listed, key=_order)), _folder):
        modules = {file.stem: first_line(root / file) for file in files}
        about = modules.pop("__init__", "")
        rows = [f"| `{name}` | {line} |" for name, line in sorted(modules.items())]
        table = ["| module | |", "| --- | --- |", *rows, ""] if rows else []
        parts.append("\n".join([f"## {folder}", "", about, "", *table]))
    return "\n".join(parts)


def _folder(file: Path) -> Path:
    return file.parent


def _order(name: str) -> tuple[int, Path, str]:
    file = Path(name)
    return PACKAGES.index(file.parts[0]), file.parent, file.name


if __name__ == "__main__":
    print(page(Path(__file__).parents[1]), end="")
