"""A Triton in a container of this host, broken from outside of it.

The container's processes are the host's, too: root sees and signals them there. Its
runtime is asked for the first of them and never told to do anything.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from pydantic import Field

from loadtests.chaos.primitives.backends import command_line
from loadtests.chaos.primitives.processes import ProcessRef
from loadtests.chaos.running.beside import beside
from loadtests.chaos.targets.base import AddressedTarget
from loadtests.errors import LoadError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from loadtests.chaos.targets.base import Surroundings
    from loadtests.chaos.targets.local import LocalSite

Runtime = Literal["docker", "podman", "nerdctl", "runc", "crun"]

_STATES: Final = frozenset({"runc", "crun"})
"""Runtimes that tell the state as JSON; the others take a template."""
_SERVER: Final = "tritonserver"
_TIMEOUT_SECONDS: Final = 5.0


class ContainerTarget(AddressedTarget):
    """Found by its container; it goes on when the experiment is over."""

    kind: Literal["container"] = "container"
    container: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$")
    """Its name or id; the allow-list calls it "container:NAME"."""
    runtime: Runtime = Field(default="docker")
    """The program that knows it."""

    @property
    def name(self) -> str:
        """container:NAME."""
        return f"container:{self.container}"

    @contextlib.contextmanager
    def opened(self, around: Surroundings) -> Generator[LocalSite]:
        """Find it.

        Raises:
            LoadError: there is no such container, or no Triton in it.
        """
        site = self.site()
        if site.server() is None:
            raise LoadError(
                f"found no {_SERVER} in {self.name}; is it running, and are its "
                "processes to be seen from here (as root, outside of it)?"
            )
        with beside(self, site, around):
            yield site

    def site(self) -> LocalSite:
        """As it is described, looked for later."""
        site = self.addressed()
        site.find_server = self._server
        return site

    def _server(self) -> ProcessRef | None:
        for pid in self._members():
            program = command_line(pid)[:1]
            if program and Path(program[0].decode(errors="replace")).name == _SERVER:
                return ProcessRef.of(pid)
        return None

    def _members(self) -> list[int]:
        """The pids of the container's processes: the first one and its descendants."""
        first = self._first_pid()
        if first is None:
            return []
        children: dict[int, list[int]] = {}
        for pid, parent in _parents():
            children.setdefault(parent, []).append(pid)
        found, queue = [], [first]
        while queue:
            pid = queue.pop(0)
            found.append(pid)
            queue += children.get(pid, ())
        return found

    def _first_pid(self) -> int | None:
        said = self._ask()
        try:
            pid = int(json.loads(said)["pid"]) if self._as_json else int(said)
        except (ValueError, LookupError, TypeError):
            return None
        # A container that has ended says 0.
        return pid if pid > 0 else None

    @property
    def _as_json(self) -> bool:
        return self.runtime in _STATES

    def _ask(self) -> str:
        program = shutil.which(self.runtime)
        if program is None:
            raise LoadError(
                f"found no program {self.runtime!r} to ask for {self.name}; install it, "
                "or name another runtime, or take the target kind process"
            )
        template = ("inspect", "--format", "{{.State.Pid}}")
        question = ("state",) if self._as_json else template
        try:
            done = subprocess.run(  # noqa: S603 - no shell, a checked name
                [program, *question, self.container],
                capture_output=True,
                text=True,
                check=False,
                timeout=_TIMEOUT_SECONDS,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise LoadError(f"{self.runtime} does not answer: {error}") from None
        return done.stdout.strip()


def _parents() -> Iterator[tuple[int, int]]:
    """Pid and parent's pid of every process of this host, as of proc(5)."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                text = (folder / "stat").read_text("utf-8", "replace")
                yield int(folder.name), int(text.rpartition(")")[2].split()[1])
