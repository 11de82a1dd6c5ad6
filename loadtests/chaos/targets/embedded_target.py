"""A Triton of the experiment's own: the default, and always allowed."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from exporter.demo.demo import demo_models
from exporter.errors import EmbeddedTritonError
from exporter.settings import Settings
from exporter.triton.embedded import EmbeddedTriton
from loadtests.chaos.primitives.process_refs import ProcessRef
from loadtests.chaos.site import Site
from loadtests.chaos.targets.chaos_target import ALWAYS_ALLOWED, Target
from loadtests.chaos.targets.companions import companions
from loadtests.chaos.targets.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Generator

    from loadtests.chaos.targets.chaos_target import Surroundings


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
        triton = EmbeddedTriton(
            repository,
            model_control="explicit",
            arguments=self._arguments(),
            log=around.scratch / "triton.log",
        )
        with triton:
            site = Site(
                name=self.name,
                grpc=triton.grpc,
                http=triton.http,
                metrics=triton.metrics,
                repository=repository,
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

    def _arguments(self) -> tuple[str, ...]:
        loaded = self.models or ("*",)
        return (*(f"--load-model={name}" for name in loaded), *self.arguments)
