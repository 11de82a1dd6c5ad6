"""Discovery: is the server there, what does it hold, and what comes and goes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from exporter import catalogue, errors
from exporter.collectors.base import Access, CollectorSettings
from exporter.inventory import Inventory
from exporter.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Sequence

    from exporter.inventory import ModelKey
    from exporter.triton.model import IndexEntry, ModelSpec


class ServerSettings(CollectorSettings):
    """The server's state and its models, as it tells them itself."""

    kind: Literal["server"] = "server"
    timeout_seconds: float = Field(default=1.0, gt=0, le=60)
    """Longest wait for one answer of the server."""
    refresh_seconds: float = Field(default=60.0, gt=0, le=86400)
    """After this long a model's metadata is read again."""

    def build(self, access: Access) -> ServerCollector:
        """The collector that keeps the inventory."""
        return ServerCollector(self, access)


class ServerCollector:
    """Keeps the inventory and says what the server says of itself."""

    def __init__(self, settings: ServerSettings, access: Access) -> None:
        self._settings = settings
        self._access = access
        self._specs: dict[ModelKey, tuple[float, ModelSpec]] = {}
        self._loads: Counter[ModelKey] = Counter()
        self._ready: set[ModelKey] | None = None

    def collect(self) -> Sequence[Sample]:
        """Look at the server once; a server that is away is a finding, not a failure.

        Raises:
            PartialResultError: it is there, and does not tell what it holds.
        """
        now = self._access.clock()
        timeout = self._settings.timeout_seconds
        client = self._access.grpc
        try:
            client.live(timeout_seconds=timeout)
        except errors.TritonError as error:
            return self._away(error)
        try:
            ready = client.ready(timeout_seconds=timeout)
        except errors.TritonError as error:
            raise self._silent(error, ready=False) from error
        try:
            info = client.server_info(timeout_seconds=timeout)
            index = tuple(
                entry
                for entry in client.repository_index(timeout_seconds=timeout)
                if self._access.models.matches(entry.name)
            )
        except errors.TritonError as error:
            raise self._silent(error, ready=ready) from error
        self._count_loads(index)
        unreadable = self._read_specs(index, now)
        models = {key: spec for key, (_, spec) in self._specs.items()}
        self._access.board.publish(Inventory(True, ready, info, index, models))
        return (
            Sample(catalogue.UP, 1),
            Sample(catalogue.READY, ready),
            Sample(catalogue.SERVER_INFO, 1, (info.name, info.version)),
            Sample(catalogue.MODELS_UNREADABLE, unreadable),
            *_readiness(index),
            *(
                Sample(catalogue.MODEL_LOADS, count, key)
                for key, count in self._loads.items()
            ),
        )

    def _away(self, error: errors.TritonError) -> Sequence[Sample]:
        board = self._access.board
        known = board.current
        board.publish(Inventory(info=known.info, models=known.models))
        if self._ready is not None and not isinstance(error, errors.DeadlineError):
            # What was ready is loaded anew by the time the server is back. One that
            # only gives no answer may be the same when it answers again.
            self._ready = set()
        return (Sample(catalogue.UP, 0), Sample(catalogue.READY, 0))

    def _silent(
        self, error: errors.TritonError, *, ready: bool
    ) -> errors.PartialResultError:
        known = self._access.board.current
        self._access.board.publish(
            Inventory(True, ready, known.info, known.index, known.models)
        )
        samples = (Sample(catalogue.UP, 1), Sample(catalogue.READY, ready))
        return errors.PartialResultError(samples, error)

    def _count_loads(self, index: Sequence[IndexEntry]) -> None:
        ready = {(entry.name, entry.version) for entry in index if entry.ready}
        for key in ready:
            # A counter that starts at 1 has no increase that PromQL could see.
            self._loads.setdefault(key, 0)
        if self._ready is not None:
            self._loads.update(ready - self._ready)
            for key in self._ready - ready:
                # Read anew when it comes back: it may be another model by then.
                self._specs.pop(key, None)
        for key in self._loads.keys() - {(e.name, e.version) for e in index}:
            del self._loads[key]
        self._ready = ready

    def _read_specs(self, index: Sequence[IndexEntry], now: float) -> int:
        """Read what is new or old, within half of the deadline; the rest next time."""
        ready = [(entry.name, entry.version) for entry in index if entry.ready]
        self._specs = {key: self._specs[key] for key in ready if key in self._specs}
        due = [key for key in ready if self._age(key, now) is None]
        due += sorted(
            (k for k in ready if (self._age(k, now) or 0) > self._refresh()),
            key=lambda key: self._specs[key][0],
        )
        unreadable = 0
        for name, version in due:
            if self._access.clock() - now > self._settings.deadline_seconds / 2:
                break
            try:
                spec = self._access.grpc.model_spec(
                    name, version, timeout_seconds=self._settings.timeout_seconds
                )
            except (errors.DeadlineError, errors.UnavailableError):
                # A server in trouble: what was known of the model stays, so that it
                # is probed now of all times.
                unreadable += 1
            except errors.TritonError:
                # Ready a moment ago, gone now; the next look will say.
                unreadable += 1
                self._specs.pop((name, version), None)
            else:
                self._specs[name, version] = (now, spec)
        return unreadable

    def _age(self, key: ModelKey, now: float) -> float | None:
        known = self._specs.get(key)
        return None if known is None else now - known[0]

    def _refresh(self) -> float:
        return self._settings.refresh_seconds


def _readiness(index: Sequence[IndexEntry]) -> list[Sample]:
    return [
        Sample(catalogue.MODEL_READY, entry.ready, (entry.name, entry.version))
        for entry in index
        # A model never loaded is listed without a version or state: nothing to say.
        if entry.state
    ]
