"""Wiring and lifetimes: from a configuration to running collectors and probes."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import structlog

from exporter import catalogue
from exporter.access.collector_base import Access, Documented
from exporter.access.inventory import InventoryBoard
from exporter.access.mirror_hub import MirrorHub
from exporter.access.own_traffic import OwnTraffic
from exporter.access.probe_base import ProbeSettings
from exporter.access.readiness import ReadinessHold
from exporter.access.span_buffer import SpanBuffer
from exporter.config import connect
from exporter.config.configured_collectors import configured_collectors
from exporter.errors import ListenError
from exporter.features.slo.objectives import expanded
from exporter.network.admission import Admission
from exporter.output.push import OtlpRunner
from exporter.output.series_lives import SeriesLives
from exporter.runtime import lifetimes
from exporter.runtime.health import CollectorRunner
from exporter.runtime.model_mentions import MentionLog, StateLog
from exporter.runtime.probing import ProbeRunner
from exporter.samples import Sample
from exporter.status.status_board import StatusBoard
from exporter.system.memory import MemoryBudget, group_limit
from exporter.taps.tap import Tap
from exporter.taps.tap_grpc import GrpcTap
from exporter.taps.tap_route import Tapped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from exporter.access.collector_base import CollectorSettings
    from exporter.access.inventory import ModelKey
    from exporter.catalogue.probe_outcomes import Outcome
    from exporter.config.configuration import Config
    from exporter.output.otlp_settings import OtlpSettings
    from exporter.samples import AnySample
    from exporter.settings import Settings
    from exporter.status.status_board import Judgement
    from exporter.taps.tap_route import MessageRoute, TapRoute

log = structlog.get_logger()

Runner = CollectorRunner | ProbeRunner | OtlpRunner

# A name no collector or probe can have.
_OTLP: Final = "otlp:push"
_OLD_SERVER: Final = "server:old"
_WATCH_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class _Running:
    settings: Settings
    runner: Runner
    task: asyncio.Task[None]
    collector: object = None


class Sidecar:
    """All components of one configuration; lives in one event loop."""

    def __init__(
        self,
        config: Config,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        seed: int | None = None,
    ) -> None:
        self.config = config
        self._clock = clock
        self._wall_clock = wall_clock
        self._rng = random.Random(seed)  # noqa: S311 - jitter, no secret
        self._running: dict[str, _Running] = {}
        self._reload_successful = True
        self._configured_at = self.started_at = wall_clock()
        self._lives = SeriesLives(self.started_at)
        self.status = StatusBoard(wall_clock, clock)
        self._ending: dict[str, set[asyncio.Task[None]]] = {}
        self._watching: asyncio.Task[None] | None = None
        self.admission = Admission(
            MemoryBudget(config.listen.memory_bytes, group=group_limit)
        )
        self.tap = Tap(
            self._routes, self.admission.tap, hosts=lambda: self.config.listen.hosts
        )
        self.grpc_tap = GrpcTap(self._routes, self.admission.grpc)
        self.access = self._connect(config)
        self._tls_files = self._renewed(config)

    def start(self) -> None:
        """Start the configured components, in the running event loop.

        Raises:
            ListenError: the tap's address cannot be bound.
        """
        self._apply(self.config, keep=False)
        self._follow_taps()
        self._watching = asyncio.create_task(self._watch(), name="transitions")

    async def stop(self) -> None:
        """End all of it; nothing runs afterwards."""
        await asyncio.gather(self.tap.stop(), self.grpc_tap.stop())
        if self._watching is not None:
            self._watching.cancel()
        for running in self._running.values():
            running.task.cancel()
        tasks = [running.task for running in self._running.values()]
        tasks += (task for ending in self._ending.values() for task in ending)
        # Whatever one of them raises, the others are to end as well.
        await asyncio.gather(*tasks, return_exceptions=True)
        self._running.clear()
        self.access.close()

    def reload(self, config: Config) -> None:
        """Switch to another configuration; unchanged components keep running.

        Raises:
            ConfigError: a file it names cannot be read; the old one stays in force.
        """
        same_server = (config.target, config.models) == (
            self.config.target,
            self.config.models,
        )
        if any(
            getattr(config.listen, key) != getattr(self.config.listen, key)
            for key in ("address", "port", "memory_bytes")
        ):
            log.warning(
                "listen_unchanged",
                reason="listen.address, port and memory_bytes take effect after a restart",
            )
        old = self.access
        before = {running.task for running in self._running.values()}
        if same_server:
            self._tls_files.reload()
        else:
            self.access = self._connect(config)
            self._tls_files = self._renewed(config)
        self._apply(config, keep=same_server)
        if not same_server:
            leaving = asyncio.create_task(self._leave(old, before))
            self._awaited(_OLD_SERVER, leaving)
        try:
            self._follow_taps()
        except ListenError as error:
            log.warning("tap_not_listening", reason=str(error))
        self.config = config
        self._reload_successful = True
        self._configured_at = self._wall_clock()
        self.status.mark("configuration reloaded")

    def reload_failed(self) -> None:
        """The configuration could not be read; the running one stays."""
        self._reload_successful = False
        self.status.mark("configuration refused")

    @property
    def ready(self) -> bool:
        """Return whether the server was polled once, with any result."""
        return self.access.board.was_read

    @property
    def runners(self) -> list[CollectorRunner | ProbeRunner]:
        """The collectors and probes that run now."""
        return [
            running.runner
            for running in list(self._running.values())
            if not isinstance(running.runner, OtlpRunner)
        ]

    @property
    def collectors(self) -> list[object]:
        """The collectors and probes themselves, for commands that run one of them."""
        return [r.collector for r in self._running.values() if r.collector is not None]

    @property
    def probe_runners(self) -> list[ProbeRunner]:
        """The probes that run now."""
        return [r for r in self.runners if isinstance(r, ProbeRunner)]

    def serving(self) -> dict[ModelKey, bool]:
        """Return by model version whether probes get through."""
        now = self._clock()
        serving: dict[ModelKey, bool] = {}
        for runner in self.probe_runners:
            for key, ok in runner.serving(now).items():
                serving[key] = serving.get(key, True) and ok
        return serving

    def judged(self, samples: Iterable[AnySample]) -> Judgement:
        """Return the findings from these samples, and the state of each model."""
        return self.status.judge(
            samples,
            self.access.board.current,
            self.serving(),
            expanded(self.config.slos),
            self.config.model_mentions(),
            {o: self._latest(o) for o in ("stalled", "backlog", "configuration")},
            [
                (runner.meter.name, runner.meter.statistics.failure)
                for runner in self.runners
                if runner.meter.fails
            ],
        )

    def _latest(self, outcome: Outcome) -> dict[ModelKey, str]:
        now = self._clock()
        found: dict[ModelKey, str] = {}
        for runner in self.probe_runners:
            found |= runner.latest(outcome, now)
        return found

    def sections(self) -> dict[str, Any]:
        """Return the sections of the status page that collectors add."""
        found: dict[str, Any] = {}
        for running in self._running.values():
            if isinstance(running.collector, Documented):
                found |= running.collector.document()
        return found

    def samples(self) -> Iterator[AnySample]:
        """Yield all current samples; reads memory only, from any thread."""
        return self._lives.dated(self._exposed(), self._wall_clock)

    def _exposed(self) -> Iterator[AnySample]:
        now = self._clock()
        running = list(self._running.values())
        for component in running:
            if not isinstance(component.runner, OtlpRunner):
                yield from component.runner.samples(now)
        for component in running:
            if isinstance(component.runner, OtlpRunner):
                yield from component.runner.samples()
        for key, ok in self.serving().items():
            yield Sample(catalogue.MODEL_SERVING, ok, key)
        yield from self.tap.samples()
        yield from self.grpc_tap.samples()
        yield from self.admission.samples()
        yield Sample(catalogue.RELOAD_SUCCESS, self._reload_successful)
        yield Sample(catalogue.RELOAD_TIMESTAMP, self._configured_at)

    async def _watch(self) -> None:
        """Log changes of state, take up renewed files and record the history."""
        transitions, mentions = StateLog(), MentionLog()
        problem = ""
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            try:
                await self._look(transitions, mentions)
            except Exception as error:
                if str(error) != problem:
                    problem = str(error)
                    log.exception("watch_failed")

    async def _look(self, transitions: StateLog, mentions: MentionLog) -> None:
        self._tls_files.watch()
        if self.ready:
            inventory = self.access.board.current
            unproven = self._latest("configuration")
            transitions.log_changes(inventory, self.serving(), unproven)
            mentions.log_changes(self.config.model_mentions(), inventory)
        await asyncio.to_thread(self.admission.memory.tidy)
        if self.ready and self.status.is_due():
            await asyncio.to_thread(self._record)

    def _record(self) -> None:
        samples = list(self._exposed())
        self.judged(samples)
        self.status.record(samples)

    def _connect(self, config: Config) -> Access:
        server, http, metrics = connect.clients(config.target)
        return Access(
            server=server,
            http=http,
            metrics=metrics,
            models=config.models,
            board=InventoryBoard(),
            own=OwnTraffic(run_id=secrets.token_hex(4)),
            clock=self._clock,
            spans=SpanBuffer(time.time_ns, self._rng),
            exposed=self._exposed,
            mirror=MirrorHub(),
            readiness=ReadinessHold(self._clock),
        )

    def _renewed(self, config: Config) -> connect.RenewedFiles:
        access = self.access
        return connect.RenewedFiles(
            config.target, access.server, access.http, access.metrics
        )

    def _apply(self, config: Config, *, keep: bool) -> None:
        collectors = configured_collectors(config)
        probes = {p.label: p for p in config.all_probes()}
        wanted: dict[str, Settings] = {**collectors, **probes}
        if config.otlp is not None:
            wanted[_OTLP] = config.otlp
        self.access.spans.wanted = config.otlp is not None and config.otlp.traces
        replaced = self._end_replaced(wanted, keep=keep)
        for name, settings in (*collectors.items(), *probes.items()):
            if name not in self._running:
                runner, built = self._built(name, settings)
                if isinstance(built, lifetimes.Inheriting):
                    built.inherit(replaced.get(name))
                self._run(name, settings, runner, built)
        if config.otlp is not None and _OTLP not in self._running:
            self._run(_OTLP, config.otlp, self._otlp_runner(config, config.otlp))

    def _end_replaced(
        self, wanted: dict[str, Settings], *, keep: bool
    ) -> dict[str, object]:
        """End what is no longer wanted as it is; return collectors that may be succeeded."""
        replaced: dict[str, object] = {}
        for name, running in list(self._running.items()):
            if not keep or wanted.get(name) != running.settings:
                running.task.cancel()
                self._awaited(name, running.task)
                del self._running[name]
                if keep:
                    replaced[name] = running.collector
        return replaced

    def _run(
        self, name: str, settings: Settings, runner: Runner, collector: object = None
    ) -> None:
        ending = frozenset(self._ending.get(name, ()))
        life = lifetimes.live(runner.run, collector, ending)
        task = asyncio.create_task(life, name=name)
        self._running[name] = _Running(settings, runner, task, collector)

    def _awaited(self, name: str, task: asyncio.Task[None]) -> None:
        """Delay the next component of that name until the task has ended."""
        ending = self._ending.setdefault(name, set())
        ending.add(task)
        task.add_done_callback(ending.discard)

    def _built(
        self, name: str, settings: CollectorSettings | ProbeSettings
    ) -> tuple[Runner, object]:
        clocks = self._clock, self._wall_clock
        if isinstance(settings, ProbeSettings):
            probe = settings.build(self.access)
            board = self.access.board
            return ProbeRunner(name, settings, probe, board, self._rng, *clocks), probe
        collector = settings.build(self.access)
        held_up = self.access.readiness.held_up
        return CollectorRunner(name, settings, collector, *clocks, held_up), collector

    def _follow_taps(self) -> None:
        where = self.config.listen.tap
        self.tap.follow(where.address, where.port)
        self.grpc_tap.follow(where.address, where.grpc_port)

    def _routes(self) -> Iterator[TapRoute | MessageRoute]:
        for running in self._running.values():
            if isinstance(running.collector, Tapped):
                yield from running.collector.routes()

    async def _leave(self, access: Access, tasks: set[asyncio.Task[None]]) -> None:
        """Close the clients after the tasks that restore settings through them have ended."""
        if tasks:
            await asyncio.wait(tasks)
        access.close()

    def _otlp_runner(self, config: Config, settings: OtlpSettings) -> Runner:
        return OtlpRunner(
            settings,
            config.target.address,
            lambda: list(self.samples()),
            self.access.spans,
            time.time_ns,
            int(self.started_at * 1e9),
        )
