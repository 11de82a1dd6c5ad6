"""Deployments under experiment: each is a settings model with `kind`, and a line in a union.

The embedded Triton is the run's own and always allowed. A process or a container runs
already; it is found, never started, and keeps running after the experiment.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from exporter.config.configuration import Address
from exporter.demo.demo import demo_models
from exporter.errors import ConfigError, EmbeddedTritonError
from exporter.settings import Settings
from exporter.system.processes import arguments_of, family_of
from exporter.triton.embedded import EmbeddedTriton
from loadtests.chaos.primitives.process_refs import ProcessRef
from loadtests.chaos.site import Site
from loadtests.chaos.targets.companions import Supervisor, companions
from loadtests.errors import LoadError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from loadtests.chaos.measuring.observations import What

    Note = Callable[[What, Mapping[str, Any]], None]
    """Records an event of the deployment, with the present time."""

ALWAYS_ALLOWED: Final = "embedded"
HOST: Final = "host"
"""Name on the allow-list of the host itself, for faults that affect all programs on it."""
Runtime = Literal["docker", "podman", "nerdctl", "runc", "crun"]
_STATES: Final = frozenset({"runc", "crun"})
"""Runtimes that print the state as JSON; the others take a template."""
_SERVER: Final = "tritonserver"
_TIMEOUT_SECONDS: Final = 5.0


class NotAllowedError(ConfigError):
    """The target, or the host, is not on the allow-list."""

    def __init__(self, name: str, allowed: Sequence[str]) -> None:
        listed = ", ".join(allowed) or "nothing"
        problem = (
            f"found {name!r}, which is not on the allow-list ({listed}, and the "
            f"embedded Triton); give --allow {name} if it may be broken"
        )
        super().__init__("the target", [problem])


def require_allowed(names: Iterable[str], allowed: Sequence[str]) -> None:
    """Raise unless all names are on the list; its entries may be shell-style patterns.

    Raises:
        NotAllowedError: one is not.
    """
    for name in names:
        if name != ALWAYS_ALLOWED and not any(fnmatchcase(name, p) for p in allowed):
            raise NotAllowedError(name, allowed)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The surroundings that a run gives to its target."""

    scratch: Path
    """A folder of the run's own."""
    token: str
    """Token in the environment of every started process (`TRITONWATCH_CHAOS`)."""
    note: Note
    seed: int
    alerts: frozenset[str]
    """Alerts that are expected; for any, a Prometheus is needed."""
    folder: Path = Path()
    """Folder of the experiment, for files that the sidecar's configuration names."""


class Target(Settings):
    """A deployment. `kind` names it in experiments."""

    sidecar: dict[str, Any] | None = Field(default=None)
    """Configuration of a sidecar that the run starts, over its defaults; {} for the defaults
    alone. None is started where left out.
    """
    sidecar_restart_seconds: float | None = Field(default=0.5, ge=0, le=600)
    """Time from the sidecar's end to its next start, as with systemd; null for never."""
    proxy: bool = Field(default=False)
    """Put a TCP proxy between Triton and both the load and the sidecar, for faults of
    the network without root."""

    @property
    def name(self) -> str:
        """Its name on the allow-list."""
        raise NotImplementedError

    @property
    def others(self) -> str | None:
        """Its name where other experiments may break it, too."""
        return None if self.name == ALWAYS_ALLOWED else self.name

    def opened(self, around: Surroundings) -> AbstractContextManager[Site]:
        """Start or find the target; a target that was started ends with the block.

        Raises:
            LoadError, TritonwatchError: it does not come up, or is not there.
        """
        raise NotImplementedError


class AddressedTarget(Target):
    """A deployment that runs already, reached at its addresses."""

    grpc: Address = Field(default="127.0.0.1:8001")
    """host:port of its gRPC."""
    http: Address = Field(default="127.0.0.1:8000")
    """host:port of its HTTP."""
    metrics: Address | None = Field(default=None)
    """host:port of its metrics page."""
    repository: str | None = Field(default=None)
    """Its model repository, where faults may change models."""
    sidecar_url: str | None = Field(default=None)
    """URL of a sidecar that runs already, like "http://127.0.0.1:8003"."""

    @field_validator("sidecar_url")
    @classmethod
    def _is_url(cls, value: str | None) -> str | None:
        if value is None:
            return None
        url = urlsplit(value)
        if url.scheme != "http" or not url.hostname or url.path not in {"", "/"}:
            raise ValueError(
                f'found {value!r}; want a URL without TLS or path, like "http://127.0.0.1:8003"'
            )
        return value.rstrip("/")

    @contextlib.contextmanager
    def opened(self, around: Surroundings) -> Generator[Site]:
        """Find it.

        Raises:
            LoadError: it is not there.
        """
        site = self.site()
        if site.server() is None:
            raise LoadError(
                f"found no {_SERVER} of {self.name} on this host (HTTP {self.http}); does "
                "it run, and may this user see it (of a container: as root, outside of it)?"
            )
        with companions(self, site, around):
            yield site

    def site(self) -> Site:
        """Return the site at these addresses; its processes are found by its ports."""
        return Site(
            name=self.name,
            grpc=self.grpc,
            http=self.http,
            metrics=self.metrics,
            repository=None if self.repository is None else Path(self.repository),
            sidecar_url=self.sidecar_url,
        )


class ProcessTarget(AddressedTarget):
    """A process found by its ports; it keeps running after the experiment."""

    kind: Literal["process"] = "process"
    called: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,100}$")
    """Name on the allow-list, after "process:"."""

    @property
    def name(self) -> str:
        """process:NAME."""
        return f"process:{self.called}"


class ContainerTarget(AddressedTarget):
    """Found by its container, and broken from outside of it.

    The container's processes are the host's, too: root sees and signals them there. Its
    runtime is queried for the first of them and never changed.
    """

    kind: Literal["container"] = "container"
    container: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$")
    """Its name or id; on the allow-list it is "container:NAME"."""
    runtime: Runtime = Field(default="docker")
    """The program that runs it."""

    @property
    def name(self) -> str:
        """container:NAME."""
        return f"container:{self.container}"

    def site(self) -> Site:
        """Return the site; its server is searched in the container."""
        site = super().site()
        site.find_server = self._server
        return site

    def _server(self) -> ProcessRef | None:
        first = self._first_pid()
        for pid in sorted(family_of([] if first is None else [first])):
            if Path(*arguments_of(pid)[:1]).name == _SERVER:
                return ProcessRef.of(pid)
        return None

    def _first_pid(self) -> int | None:
        said = self._ask()
        try:
            pid = int(json.loads(said)["pid"]) if self._as_json else int(said)
        except (ValueError, LookupError, TypeError):
            return None
        # The pid of a container that has ended is 0.
        return pid if pid > 0 else None

    @property
    def _as_json(self) -> bool:
        return self.runtime in _STATES

    def _ask(self) -> str:
        program = shutil.which(self.runtime)
        if program is None:
            raise LoadError(
                f"found no program {self.runtime!r} to ask for {self.name}; install "
                "it, set another runtime, or use the target kind process"
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


class RestartSettings(Settings):
    """Restarts of the server, as by systemd or Kubernetes."""

    delay_seconds: float = Field(default=0.5, ge=0, le=600)
    """Time from its end to its next start."""


class EmbeddedTarget(Target):
    """Demo models on a Triton of the run's own, from a copy that faults may change."""

    kind: Literal["embedded"] = "embedded"
    models: tuple[str, ...] = Field(default=(), max_length=50)
    """Models of the repository to load; all where left out."""
    repository: str | None = Field(default=None)
    """Model repository; by default the demo models."""
    restart: RestartSettings | None = Field(default=RestartSettings())
    """Restarts of the server when it ends; null for none."""
    arguments: tuple[str, ...] = Field(default=(), max_length=50)
    """More arguments of tritonserver."""

    @property
    def name(self) -> str:
        """Always allowed under this one."""
        return ALWAYS_ALLOWED

    @contextlib.contextmanager
    def opened(self, around: Surroundings) -> Generator[Site]:
        """Start the server, and the process that restarts it.

        Raises:
            EmbeddedTritonError: it is not installed, or does not start.
        """
        repository = self._copy(around.scratch / "models")
        loaded = (f"--load-model={name}" for name in self.models or ("*",))
        triton = EmbeddedTriton(
            repository,
            model_control="explicit",
            arguments=(*loaded, *self.arguments),
            log=around.scratch / "triton.log",
        )
        with triton:
            site = Site(
                name=self.name,
                grpc=triton.grpc,
                http=triton.http,
                metrics=triton.metrics,
                repository=repository,
                owns_repository=True,
                find_server=lambda: (
                    ProcessRef.of(triton.pid) if triton.running else None
                ),
            )
            delay = None if self.restart is None else self.restart.delay_seconds
            kept = Supervisor(
                "server", lambda: triton.running, triton.start, delay, around.note
            )
            with companions(self, site, around), kept:
                yield site

    def _copy(self, folder: Path) -> Path:
        source = demo_models() if self.repository is None else Path(self.repository)
        if not source.is_dir():
            raise EmbeddedTritonError(f"found no model repository at {source}")
        missing = [name for name in self.models if not (source / name).is_dir()]
        if missing:
            known = sorted(path.name for path in source.iterdir() if path.is_dir())
            raise EmbeddedTritonError(
                f"found no model {', '.join(missing)} in {source}; it has "
                f"{', '.join(known)}"
            )
        folder.mkdir()
        for model in source.iterdir():
            if model.is_dir() and (not self.models or model.name in self.models):
                shutil.copytree(model, folder / model.name)
        return folder


AnyTarget = Annotated[
    ContainerTarget | EmbeddedTarget | ProcessTarget,
    Field(discriminator="kind"),
]
"""Every target, distinguished by its `kind`."""
