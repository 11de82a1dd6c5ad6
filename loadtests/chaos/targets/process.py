"""A Triton that runs on this host already, and perhaps its sidecar."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from loadtests.chaos.running.beside import beside
from loadtests.chaos.targets.base import AddressedTarget
from loadtests.errors import LoadError

if TYPE_CHECKING:
    from collections.abc import Generator

    from loadtests.chaos.targets.base import Surroundings
    from loadtests.chaos.targets.local import LocalSite


class ProcessTarget(AddressedTarget):
    """Found by its ports; it goes on when the experiment is over."""

    kind: Literal["process"] = "process"
    called: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,100}$")
    """What the allow-list calls it, after "process:"."""

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
        return self.addressed()
