"""The environment that holds the embedded Triton, and its backend made ready to run."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from exporter.errors import EmbeddedTritonError

NAME: Final = ".triton"
SERVER_VARIABLE: Final = "TRITONWATCH_TRITON"
"""Names a folder with bin/tritonserver and backends, to be used in place of the
wheel's."""
_HOW: Final = "`make demo` or `make .triton/.ready` makes it"
_STUB: Final = "triton_python_backend_stub"
_PROBE: Final = """
import importlib.metadata as metadata, json, sys, sysconfig
print(json.dumps({
    "version": "%d.%d" % sys.version_info[:2],
    "numpy": metadata.version("numpy"),
    "site": sysconfig.get_path("platlib"),
    "folders": [sysconfig.get_config_var("LIBDIR"), sys.base_prefix + "/lib",
                "/usr/lib/" + (sysconfig.get_config_var("MULTIARCH") or ""),
                "/usr/lib64", "/usr/local/lib"],
}))
"""
_CORRECT: Final = """
import tensors_numpy2
tensors_numpy2.install(__name__)
"""


@dataclass(frozen=True, slots=True)
class Environment:
    """A server, and a virtual environment with numpy for its Python backend.

    The server is the nvidia-pytriton wheel's or the one that SERVER_VARIABLE names.
    """

    folder: Path
    python: str
    numpy: str
    site: Path
    libraries: tuple[Path, ...]
    triton: Path
    """Folder with bin/tritonserver, backends and caches."""

    @property
    def server(self) -> Path:
        """The tritonserver program."""
        return self.triton / "bin" / "tritonserver"

    @property
    def caches(self) -> Path:
        """Folder of the server's response caches."""
        return self.triton / "caches"

    def settings(self, folder: Path) -> dict[str, str]:
        """Environment variables for a server that runs from a prepared folder."""
        return {
            # The stub takes the first python3 on PATH for its own.
            "PATH": f"{folder / 'bin'}:/usr/local/bin:/usr/bin:/bin",
            "LD_LIBRARY_PATH": ":".join(map(str, self.libraries)),
        }

    def prepare(self, folder: Path) -> None:
        """Put what a server needs of its own into the folder.

        `folder/backends` is a copy of the backends with the right stub: the wheel's tree
        may not be ours to write, and several servers may run from it. The rest of the
        folder is a Python that writes no bytecode.
        """
        self._copy_backend(folder / "backends" / "python")
        self._make_python(folder)

    def _copy_backend(self, target: Path) -> None:
        shutil.copytree(
            self.triton / "backends" / "python",
            target,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        stubs = self.triton / "python_backend_stubs" / self.python
        if stubs.is_dir():
            shutil.copy(stubs / _STUB, target)
            (target / _STUB).chmod(0o755)
        if not self.numpy.startswith("1."):
            shutil.copy(Path(__file__).with_name("tensors_numpy2.py"), target)
            with (target / "triton_python_backend_utils.py").open("a") as module:
                module.write(_CORRECT)

    def _make_python(self, folder: Path) -> None:
        # A virtual environment over this one. The stub ignores PYTHONDONTWRITEBYTECODE,
        # and would write into the model repository, which is not ours and whose changes
        # Triton may be polling for.
        site = folder / "lib" / f"python{self.python}" / "site-packages"
        site.mkdir(parents=True)
        line = "import sys; sys.dont_write_bytecode = True"
        (site / "tritonwatch.pth").write_text(f"{self.site}\n{line}\n")
        shutil.copy(self.folder / "pyvenv.cfg", folder)
        programs = folder / "bin"
        programs.mkdir()
        for name in ("python", "python3"):
            (programs / name).symlink_to((self.folder / "bin" / "python").resolve())


def find(*starts: Path) -> Path:
    """The nearest `.triton`, upwards from each start.

    Starts are the working directory and this file's own folder unless given.

    Raises:
        EmbeddedTritonError: there is none.
    """
    starts = starts or (Path.cwd(), Path(__file__).resolve().parent)
    for start in starts:
        for folder in (start, *start.parents):
            if (folder / NAME / "bin" / "python").exists():
                return folder / NAME
    raise EmbeddedTritonError(
        f"found no {NAME} in or above {' or '.join(map(str, starts))}; {_HOW}"
    )


@functools.cache
def inspect(folder: Path) -> Environment:
    """Read the version, numpy and libraries of the environment's Python.

    Raises:
        EmbeddedTritonError: not such an environment, or a shared library is missing.
    """
    folder = folder.absolute()
    python = folder / "bin" / "python"
    try:
        answer = subprocess.run(  # noqa: S603 - the environment the caller named
            [python, "-I", "-c", _PROBE],
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise EmbeddedTritonError(
            f"found no usable Python with numpy in {folder}: {error}; {_HOW}"
        ) from None
    facts = json.loads(answer.stdout)
    site, version = Path(facts["site"]), facts["version"]
    given = os.environ.get(SERVER_VARIABLE)
    if given:
        return _given(folder, facts, Path(given))
    stubs = site / "pytriton" / "tritonserver" / "python_backend_stubs"
    if not (stubs / version).is_dir():
        known = sorted(path.name for path in stubs.glob("*"))
        raise EmbeddedTritonError(
            f"found no Triton for Python {version} in {site} (has: {known or 'none'}); {_HOW}"
        )
    vendored = site / "nvidia_pytriton.libs"
    libraries = [vendored]
    # The wheel brings its own libpython for 3.13 alone.
    if not list(vendored.glob(f"libpython3-*.{version.removeprefix('3.')}.so*")):
        libraries.append(_folder_of(f"libpython{version}.so.1.0", facts["folders"]))
    triton = site / "pytriton" / "tritonserver"
    return Environment(folder, version, facts["numpy"], site, tuple(libraries), triton)


def _given(folder: Path, facts: dict[str, Any], triton: Path) -> Environment:
    """The server of a container or of one's own build, with the Python of `folder`."""
    for part in ("bin/tritonserver", f"backends/python/{_STUB}"):
        if not (triton / part).is_file():
            raise EmbeddedTritonError(
                f"{SERVER_VARIABLE}={triton}: found no {part} there; give the folder that "
                "has bin/tritonserver and backends, /opt/tritonserver in NVIDIA's container"
            )
    linked = re.search(
        rb"libpython(3\.\d+)\.so", (triton / f"backends/python/{_STUB}").read_bytes()
    )
    wanted = linked[1].decode() if linked else facts["version"]
    if wanted != facts["version"]:
        raise EmbeddedTritonError(
            f"{SERVER_VARIABLE}={triton}: its Python backend is built for Python "
            f"{wanted}, and {folder} has {facts['version']}; create that folder again "
            f"with it: `rm -rf {NAME} && make {NAME}/.ready PYTHON=python{wanted}`"
        )
    libraries = (
        triton / "lib",
        _folder_of(f"libpython{wanted}.so.1.0", facts["folders"]),
    )
    site = Path(facts["site"])
    return Environment(folder, wanted, facts["numpy"], site, libraries, triton)


def _folder_of(library: str, folders: list[str]) -> Path:
    for folder in folders:
        if folder and (Path(folder) / library).exists():
            return Path(folder)
    package = library.removesuffix(".so.1.0")
    raise EmbeddedTritonError(
        f"found no {library} in {', '.join(folders)}, which Triton's Python backend needs; "
        f"on Debian or Ubuntu: apt-get install {package}"
    )
