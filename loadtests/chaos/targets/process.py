"""A Triton that runs on this host already, and perhaps its sidecar."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from exporter.config import is_address
from loadtests.chaos.beside import beside
from loadtests.chaos.targets.base import Target
from loadtests.chaos.targets.local import LocalSite
from loadtests.errors import LoadError

if TYPE_CHECKING:
    from collections.abc import Generator

    from loadtests.chaos.targets.base import Surroundings


class ProcessTarget(Target):
    """Found by its ports; it goes on when the experiment is over."""

    kind: Literal["process"] = "process"
    called: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,100}$")
    """What the allow-list calls it, after "process:"."""
    grpc: str = Field(default="127.0.0.1:8001")
    """host:port of its gRPC."""
    http: str = Field(default="127.0.0.1:8000")
    """host:port of its HTTP."""
    metrics: str | None = Field(default=None)
    """host:port of its metrics page."""
    repository: str | None = Field(default=None)
    """Its model repository, where faults may change models."""
    trace_folder: str | None = Field(default=None)
    """Where it writes trace files."""
    sidecar_url: str | None = Field(default=None)
    """Of a sidecar that runs already, like "http://127.0.0.1:8003"."""
    peers: dict[str, str] = Field(default={}, max_length=10)
    """host:port of what the sidecar talks to: "otlp", "tap", "prometheus"."""

    @field_validator("grpc", "http", "metrics")
    @classmethod
    def _is_address(cls, value: str | None) -> str | None:
        if value is not None and not is_address(value):
            raise ValueError('want "host:port", like "127.0.0.1:8001"')
        return value

    @field_validator("sidecar_url")
    @classmethod
    def _is_url(cls, value: str | None) -> str | None:
        if value is not None and not urlsplit(value).hostname:
            raise ValueError('want a URL, like "http://127.0.0.1:8003"')
        return value

    @property
    def name(self) -> str:
        """process:NAME."""
        return f"process:{self.called}"

    @contextlib.contextmanager
    def opened(self, around: Surroundings) -> Generator[LocalSite]:
        """Find it.

        Raises:
            LoadError: nobody listens there.
        """
        site = self.site()
        if site.server() is None:
            raise LoadError(
                f"found nobody that listens on {self.http} of this host, or it is "
                "another user's; want the HTTP port of a running Triton"
            )
        with beside(self, site, around):
            yield site

    def site(self) -> LocalSite:
        """As it is described, looked for later."""
        return LocalSite(
            name=self.name,
            grpc=self.grpc,
            http=self.http,
            metrics=self.metrics,
            repository=_folder(self.repository),
            trace_folder=_folder(self.trace_folder),
            sidecar_url=self.sidecar_url,
            peers=dict(self.peers),
        )


def _folder(path: str | None) -> Path | None:
    return None if path is None else Path(path)
