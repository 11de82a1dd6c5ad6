"""A Triton in a Kubernetes cluster, broken by chaostoolkit-kubernetes.

Its processes are another host's, so that faults of processes are refused, and pods are
broken by actions of `chaosk8s`. The target holds those to its own namespace and labels:
what is allowed is `kubernetes:NAMESPACE/LABELS`, and nothing beside it.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field

from loadtests.chaos.running.beside import beside
from loadtests.chaos.targets.base import AddressedTarget

if TYPE_CHECKING:
    from collections.abc import Generator

    from loadtests.chaos.primitives.processes import ProcessRef
    from loadtests.chaos.running.hypothesis import Activity
    from loadtests.chaos.targets.base import Surroundings
    from loadtests.chaos.targets.local import LocalSite

PACKAGE: Final = "chaosk8s"
_LABEL: Final = r"[A-Za-z0-9./_-]{1,253}=[A-Za-z0-9._-]{1,63}"


class KubernetesTarget(AddressedTarget):
    """Reached by a Service or a port-forward; it goes on when the experiment is over."""

    kind: Literal["kubernetes"] = "kubernetes"
    namespace: str = Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")
    """Of its pods."""
    label_selector: str = Field(pattern=rf"^{_LABEL}(,{_LABEL}){{0,9}}$")
    """Of its pods, like "app=triton"."""

    @property
    def name(self) -> str:
        """kubernetes:NAMESPACE/LABELS."""
        return f"kubernetes:{self.namespace}/{self.label_selector}"

    @contextlib.contextmanager
    def opened(self, around: Surroundings) -> Generator[LocalSite]:
        """By its addresses: whether it answers is the load's to find out."""
        site = self.addressed()
        site.find_server = _not_here
        with beside(self, site, around):
            yield site

    def covers(self, activity: Activity) -> bool:
        """Return whether a chaosk8s action keeps to the namespace and the labels."""
        module, arguments = activity.provider.module or "", activity.provider.arguments
        if module.partition(".")[0] != PACKAGE or not isinstance(arguments, dict):
            return False
        return all(
            arguments.get(key) == value for key, value in self._wanted(module).items()
        )

    def _wanted(self, module: str) -> dict[str, Any]:
        wanted = {"ns": self.namespace}
        if module.startswith(f"{PACKAGE}.pod"):
            wanted["label_selector"] = self.label_selector
        return wanted


def _not_here() -> ProcessRef | None:
    return None
