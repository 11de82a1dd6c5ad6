"""The models that the server holds now, shared by all collectors and probes."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping

    from exporter.triton.protocol_types import IndexEntry, ModelSpec, ServerInfo

ModelKey = tuple[str, str]
"""(model, version)"""

REREAD_SECONDS: Final = 1.0
"""Minimum time between two extra reads of one model version's signature."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """One read of the server. `models` are those in the index as ready and `wholly_read`.

    While the server does not answer, `models` stays as it was, so that probes continue;
    `up` and `ready` are current.
    """

    up: bool = False
    ready: bool = False
    info: ServerInfo | None = None
    index: tuple[IndexEntry, ...] = ()
    models: dict[ModelKey, ModelSpec] = field(default_factory=dict)
    denying: frozenset[ModelKey] = frozenset()
    """Models that are ready in the index, but not by their own readiness."""
    loaded_at: Mapping[ModelKey, float] = field(default_factory=dict)
    """When the latest load of each was noticed; without those that none was seen of."""
    is_late: bool = False
    """True if it is not up because its answer was late: it still has what was sent to it."""
    unreadable: Mapping[ModelKey, str] = field(default_factory=dict)
    """Ready models whose signature could not be read, and why."""

    def loads(self, keys: Iterable[ModelKey]) -> tuple[float | None, ...]:
        """Return what changes when one of these is loaded again under its version."""
        return tuple(self.loaded_at.get(key) for key in keys)

    def is_ready(self, entry: IndexEntry) -> bool:
        """Return whether it is ready, in the index and by its own readiness."""
        return entry.ready and entry.key not in self.denying

    def shown(self) -> list[IndexEntry]:
        """Return the versions with a state, without those that another one replaced."""
        ready = {entry.name for entry in self.index if self.is_ready(entry)}
        return [
            entry
            for entry in self.index
            if entry.state and not (entry.reason == "unloaded" and entry.name in ready)
        ]


class InventoryBoard:
    """Holds the latest inventory; the server collector writes it, anything reads it.

    Probes and the statistics collector report signs of a reload, which the server
    collector takes. Thread-safe, except that listeners come and go in one thread.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._current = Inventory()
        self._seen = threading.Event()
        self._listeners: tuple[Callable[[], None], ...] = ()
        self._signs: dict[tuple[ModelKey, bool], ModelSpec | None] = {}
        self._reread_at: dict[ModelKey, float] = {}
        self._rereads: dict[ModelKey, threading.Lock] = {}

    @property
    def current(self) -> Inventory:
        """The latest inventory; an empty one before the first read."""
        return self._current

    def publish(self, inventory: Inventory) -> None:
        """Replace the inventory, except for signatures reported as changed meanwhile."""
        with self._lock:
            changed = {
                key: spec
                for (key, _), spec in self._signs.items()
                if spec is not None and key in inventory.models
            }
            if changed:
                inventory = replace(inventory, models={**inventory.models, **changed})
            self._current = inventory
            for key in self._rereads.keys() - inventory.models.keys():
                del self._rereads[key]
        self._seen.set()
        for listener in self._listeners:
            listener()

    def reloaded(self, key: ModelKey, spec: ModelSpec | None = None) -> None:
        """Report a sign of a reload; a changed signature is published at once."""
        with self._lock:
            if key not in self._current.models:
                return
            self._signs[key, spec is None] = spec
            current = self._current
        if spec is not None:
            self.publish(current)

    def pop_signs(self) -> list[tuple[ModelKey, ModelSpec | None]]:
        """The versions reported since the last call as loaded again while they stayed ready.

        Each with its new signature; None where its statistics started over.
        """
        with self._lock:
            signs = [(key, spec) for (key, _), spec in self._signs.items()]
            self._signs.clear()
        return signs

    def reread_lock(self, key: ModelKey) -> threading.Lock:
        """Held while this version's signature is read again."""
        with self._lock:
            return self._rereads.setdefault(key, threading.Lock())

    def may_reread(self, key: ModelKey, now: float) -> bool:
        """Return whether this signature may be read again now; if so, `now` is noted."""
        with self._lock:
            if now - self._reread_at.get(key, -REREAD_SECONDS) < REREAD_SECONDS:
                return False
            self._reread_at = {
                k: at for k, at in self._reread_at.items() if now - at < REREAD_SECONDS
            }
            self._reread_at[key] = now
            return True

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
    def was_read(self) -> bool:
        """Return whether the server was read at least once, with or without success."""
        return self._seen.is_set()


def with_steps(spec: ModelSpec, inventory: Inventory) -> dict[ModelKey, ModelSpec]:
    """The model version and, of an ensemble, all that its requests pass through."""
    found: dict[ModelKey, ModelSpec] = {}
    waiting = [spec]
    while waiting:
        reached = waiting.pop()
        key = reached.key
        if key in found:
            continue
        found[key] = reached
        for model, version in reached.steps:
            step = find_model(inventory, model, version)
            if step is not None:
                waiting.append(step)
    return found


def wholly_read(
    specs: Mapping[ModelKey, ModelSpec],
    ready: Iterable[ModelKey],
    calls: Mapping[str, Mapping[str, int]],
) -> dict[ModelKey, ModelSpec]:
    """The models whose steps and declared calls lead only to models that were read.

    Where a request to one of the others ends is unknown: on a step that is not read yet it
    would appear as production.
    """
    reached = {
        key: {*spec.steps, *((model, "") for model in calls.get(key[0], {}))}
        for key, spec in specs.items()
    }
    # The version "" is the latest one, which may be among those not read.
    partly = {
        (name, v)
        for name, version in ready
        if (name, version) not in specs
        for v in (version, "")
    }
    while more := {
        key
        for key, steps in reached.items()
        if key not in partly and not steps.isdisjoint(partly)
    }:
        partly |= more | {(name, "") for name, _ in more}
    return {
        key: specs[key] for key, steps in reached.items() if steps.isdisjoint(partly)
    }


def find_model(inventory: Inventory, model: str, version: str) -> ModelSpec | None:
    """Return a model version of the server; the latest one if `version` is empty."""
    version = version or latest_version(inventory, model) or ""
    return inventory.models.get((model, version))


def latest_version(inventory: Inventory, model: str) -> str | None:
    """The highest ready version of `model`, as Triton's own 'latest' means it."""
    return latest_of(inventory.models, model)


def versions_of(inventory: Inventory, model: str) -> list[ModelSpec]:
    """The ready versions of `model`, the latest first."""
    found = [spec for (name, _), spec in inventory.models.items() if name == model]
    return sorted(found, key=lambda spec: _version_order(spec.version), reverse=True)


def latest_of(keys: Iterable[ModelKey], model: str) -> str | None:
    """The highest version of `model` among these."""
    versions = [version for name, version in keys if name == model]
    return max(versions, key=_version_order, default=None)


def _version_order(version: str) -> tuple[int, str]:
    return (int(version) if version.isdecimal() else -1, version)
