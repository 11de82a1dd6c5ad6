"""Discovery: whether the server answers, its models, and how often each was loaded."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final, Literal

from pydantic import Field

from exporter import catalogue, errors
from exporter.access.collector_base import Access, CollectorSettings
from exporter.access.inventory import Inventory, wholly_read
from exporter.access.readiness import ReadinessAsker
from exporter.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from exporter.access.inventory import ModelKey
    from exporter.triton.protocol_types import IndexEntry, ModelSpec, ServerInfo


class ServerSettings(CollectorSettings):
    """The server's state and its models, as it reports them."""

    kind: Literal["server"] = "server"
    needs_triton: ClassVar[bool] = False
    timeout_seconds: float = Field(default=1.0, gt=0, le=60)
    """Timeout of one request to the server."""
    refresh_seconds: float = Field(default=60.0, gt=0, le=86400)
    """Age at which the metadata of a model are read again."""

    def build(self, access: Access) -> ServerCollector:
        """The collector that keeps the inventory."""
        return ServerCollector(self, access)


class ServerCollector:
    """Keeps the inventory and exposes what the server reports of itself."""

    def __init__(self, settings: ServerSettings, access: Access) -> None:
        self._settings = settings
        self._access = access
        self._specs: dict[ModelKey, tuple[float, ModelSpec]] = {}
        self._loads = LoadCounter()
        self._ready: set[ModelKey] | None = None
        self._readiness = self._make_asker()

    def collect(self) -> Sequence[Sample]:
        """Read the server once; one that is unreachable is a result, not a failure.

        Raises:
            DeniedError: it is not known whether it is up: our request was refused.
            DeadlineError: one of our own readiness requests delays its answers.
            PartialResultError: it answers, but not about its readiness or its models.
        """
        now = self._access.clock()
        timeout = self._settings.timeout_seconds
        client = self._access.server
        try:
            client.live(timeout_seconds=timeout)
        except errors.DeniedError:
            raise
        except errors.TritonError as error:
            self._raise_if_held_up(error, now)
            return self._unreachable(error)
        try:
            info = client.server_info(timeout_seconds=timeout)
            # By name and version: with --model-namespacing a name may be listed twice.
            listed = {
                entry.key: entry
                for entry in client.repository_index(timeout_seconds=timeout)
                if self._access.models.matches(entry.name)
            }
            index = tuple(listed.values())
        except errors.TritonError as error:
            self._raise_if_held_up(error, now)
            raise self._partial(error) from error
        self._count_loads(index, now)
        self._apply_reload_signs(now)
        unreadable = self._read_specs(index, now)
        ready_keys = [entry.key for entry in index if entry.ready]
        # Last, so that a readiness request that hangs delays nothing else of this run.
        readiness = self._readiness.ask(
            ready_keys,
            seconds=min(timeout, self._settings.deadline_seconds / 4),
            may_hang=_may_hang(info),
        )
        models = wholly_read(
            {key: spec for key, (_, spec) in self._specs.items()},
            ready_keys,
            self._access.own.calls,
        )
        is_ready = readiness.server is True
        denying = frozenset(
            k for k, ready in readiness.models.items() if ready is False
        )
        # Those that a collector before this one noticed are still the latest.
        before = self._access.board.current.loaded_at
        latest = {key: load.at for key, load in self._loads.latest.items()}
        loaded_at = {k: at for k, at in {**before, **latest}.items() if k in listed}
        found = Inventory(
            True,
            is_ready,
            info,
            index,
            models,
            denying,
            loaded_at,
            unreadable=unreadable,
        )
        self._access.board.publish(found)
        unprobed = len(unreadable) + len(self._specs) - len(models)
        samples = (
            *_server_samples(found, info, unprobed),
            *(
                Sample(catalogue.MODEL_LOADS, n, k)
                for k, n in self._loads.counts.items()
            ),
            *_timeouts(readiness.timeouts),
        )
        if readiness.error is not None:
            raise errors.PartialResultError(samples, readiness.error)
        return samples

    def _make_asker(self) -> ReadinessAsker:
        access = self._access
        return ReadinessAsker(access.server, access.readiness, access.clock)

    def _raise_if_held_up(self, error: errors.TritonError, since: float) -> None:
        late = isinstance(error, errors.DeadlineError)
        if late and self._access.readiness.held_up(since):
            raise error

    def _unreachable(self, error: errors.TritonError) -> Sequence[Sample]:
        # Requests that hung may be answered once it is back.
        self._readiness = self._make_asker()
        board = self._access.board
        known = board.current
        late = isinstance(error, errors.DeadlineError)
        gone = replace(known, up=False, ready=False, index=(), denying=frozenset())
        board.publish(replace(gone, is_late=late))
        has_statistics = known.info is None or known.info.is_triton
        if self._ready is not None and not has_statistics and not late:
            # Nothing else would tell that it started anew.
            self._ready = set()
        return (Sample(catalogue.UP, 0), Sample(catalogue.READY, 0))

    def _partial(self, error: errors.TritonError) -> errors.PartialResultError:
        known = self._access.board.current
        answer = self._readiness.ask(
            [entry.key for entry in known.index if entry.ready],
            seconds=self._settings.timeout_seconds,
            may_hang=_may_hang(known.info),
        )
        ready = answer.server is True
        self._access.board.publish(replace(known, up=True, ready=ready, is_late=False))
        samples = (Sample(catalogue.UP, 1), Sample(catalogue.READY, ready))
        return errors.PartialResultError(samples, error)

    def _count_loads(self, index: Sequence[IndexEntry], now: float) -> None:
        ready = {entry.key for entry in index if entry.ready}
        for key in ready:
            # PromQL could not see an increase of a counter that starts at 1.
            self._loads.counts.setdefault(key, 0)
        if self._ready is not None:
            for key in ready - self._ready:
                self._loads.add(key, "ready", now)
            for key in self._ready - ready:
                # Read again when it is back: it may be another model by then.
                self._specs.pop(key, None)
        self._loads.keep(e.key for e in index)
        self._ready = ready

    def _apply_reload_signs(self, now: float) -> None:
        """Count the reloads that others noticed, and read those models first."""
        for key, spec in self._access.board.pop_signs():
            known = self._specs.get(key)
            if known is None:
                continue
            if spec is None:
                self._loads.add(key, "statistics", now)
                self._specs[key] = (-math.inf, known[1])
            else:
                # Not news where this collector has read the same change meanwhile.
                self._keep_spec(key, spec, now)

    def _read_specs(
        self, index: Sequence[IndexEntry], now: float
    ) -> dict[ModelKey, str]:
        """Read new or outdated metadata, within half of the deadline; the rest next time.

        Returns why those of some models could not be read.
        """
        ready = [entry.key for entry in index if entry.ready]
        self._specs = known = {k: self._specs[k] for k in ready if k in self._specs}
        due = [key for key in ready if key not in known]
        oldest = now - self._settings.refresh_seconds
        due += sorted(
            (key for key, (read_at, _) in known.items() if read_at < oldest),
            key=lambda key: known[key][0],
        )
        unreadable: dict[ModelKey, str] = {}
        for name, version in due:
            if self._access.clock() - now > self._settings.deadline_seconds / 2:
                break
            try:
                spec = self._access.server.model_spec(
                    name, version, timeout_seconds=self._settings.timeout_seconds
                )
            except (
                errors.DeadlineError,
                errors.DeniedError,
                errors.UnavailableError,
            ) as error:
                # The server has a problem: keep the known signature, so that the model
                # is still probed.
                unreadable[name, version] = str(error)
            except errors.TritonError as error:
                # Unloaded meanwhile, or not the only model of its name.
                unreadable[name, version] = str(error)
                self._specs.pop((name, version), None)
            else:
                self._keep_spec((name, version), spec, now)
        return unreadable

    def _keep_spec(self, key: ModelKey, spec: ModelSpec, now: float) -> None:
        known = self._specs.get(key)
        if known is not None and known[1] != spec:
            self._loads.add(key, "signature", now)
        self._specs[key] = (now, spec)


def _may_hang(info: ServerInfo | None) -> bool:
    """Return whether a Python model's own `is_ready()` can delay the server's answers."""
    version = None if info is None else info.numbers
    return version is not None and version >= _IS_READY_SINCE


_IS_READY_SINCE: Final = (2, 67)


def _server_samples(
    found: Inventory, info: ServerInfo, unreadable: int
) -> Iterator[Sample]:
    yield Sample(catalogue.UP, 1)
    yield Sample(catalogue.READY, found.ready)
    yield Sample(catalogue.SERVER_INFO, 1, (info.name, info.version))
    yield Sample(catalogue.MODELS_UNREADABLE, unreadable)
    yield Sample(catalogue.MODELS_DENYING, len(found.denying))
    for entry in found.index:
        # A model never loaded is listed without a version or state: nothing is known.
        if entry.state:
            is_ready = found.is_ready(entry)
            yield Sample(catalogue.MODEL_READY, is_ready, entry.key)


def _timeouts(counts: Mapping[ModelKey, int]) -> Iterator[Sample]:
    for key, number in counts.items():
        if number:
            yield Sample(catalogue.READINESS_TIMEOUTS, number, key)


Evidence = Literal["ready", "statistics", "signature"]
"""Evidence of a reload: it became ready, its statistics or its signature changed."""
SAME_LOAD_SECONDS: Final = 15.0
"""Evidence of another kind within this time is of the same load: statistics and server
are read every 5 s by default."""


@dataclass(slots=True)
class _Load:
    at: float
    evidence: set[Evidence]


class LoadCounter:
    """Loads by model version; each load may show in up to three ways, or in one."""

    def __init__(self) -> None:
        self.counts: Counter[ModelKey] = Counter()
        self.latest: dict[ModelKey, _Load] = {}

    def add(self, key: ModelKey, evidence: Evidence, now: float) -> None:
        """Count a load, unless this is more evidence of the one counted last."""
        latest = self.latest.get(key)
        if (
            latest is not None
            and now - latest.at <= SAME_LOAD_SECONDS
            and evidence not in latest.evidence
        ):
            latest.evidence.add(evidence)
            return
        self.counts[key] += 1
        self.latest[key] = _Load(now, {evidence})

    def keep(self, keys: Iterable[ModelKey]) -> None:
        """Forget every version that is not among `keys`."""
        for key in self.counts.keys() - set(keys):
            del self.counts[key]
            self.latest.pop(key, None)
