"""What the server holds right now, shared by everything that asks about models."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from exporter.triton.model import IndexEntry, ModelSpec, ServerInfo

ModelKey = tuple[str, str]
"""(model, version)"""


@dataclass(frozen=True, slots=True)
class Inventory:
    """One look at the server. `models` are the ready ones that could be read.

    While the server does not answer, `models` stays what it was, so that probes keep
    asking; `up` and `ready` say what is so now.
    """

    up: bool = False
    ready: bool = False
    info: ServerInfo | None = None
    index: tuple[IndexEntry, ...] = ()
    models: dict[ModelKey, ModelSpec] = field(default_factory=dict)


class InventoryBoard:
    """Holds the latest inventory; one writer, any number of readers.

    Listeners come and go in one thread, which need not be the writer's.
    """

    def __init__(self) -> None:
        self._current = Inventory()
        self._seen = threading.Event()
        self._listeners: tuple[Callable[[], None], ...] = ()

    @property
    def current(self) -> Inventory:
        """The latest inventory; an empty one before the first look."""
        return self._current

    def publish(self, inventory: Inventory) -> None:
        """Replace the inventory as a whole."""
        self._current = inventory
        self._seen.set()
        for listener in self._listeners:
            listener()

    @contextlib.contextmanager
    def listened_to(self, listener: Callable[[], None]) -> Generator[None]:
        """Call it after each publication, in the writer's thread."""
        self._listeners = (*self._listeners, listener)
        try:
            yield
        finally:
            self._listeners = tuple(
                other for other in self._listeners if other is not listener
            )

    @property
    def looked(self) -> bool:
        """Whether the server was looked at, with whatever result."""
        return self._seen.is_set()


def latest_version(inventory: Inventory, model: str) -> str | None:
    """The highest ready version of `model`, as Triton's own 'latest' means it."""
    return latest_of(inventory.models, model)


def latest_of(keys: Iterable[ModelKey], model: str) -> str | None:
    """The highest version of `model` among these."""
    versions = [version for name, version in keys if name == model]
    return max(versions, key=_version_order, default=None)


def _version_order(version: str) -> tuple[int, str]:
    return (int(version) if version.isdecimal() else -1, version)
