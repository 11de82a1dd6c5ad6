"""Gathers the evidence of one server once, gently and within a deadline."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from exporter import catalogue, errors
from exporter.access.collector_base import Access
from exporter.access.inventory import Inventory
from exporter.commands.audit import audit_requests
from exporter.commands.audit.audit_evidence import (
    Disagreement,
    Evidence,
    Page,
    config_path,
    parse_config,
)
from exporter.commands.audit.audit_power import PowerLook
from exporter.commands.audit.finding import many
from exporter.config import connect
from exporter.features.discovery.server_collector import ServerSettings
from exporter.features.statistics.crosscheck import CrossCheck
from exporter.output.exposition import parse_text
from exporter.triton.http import HttpClient

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from exporter.access.inventory import ModelKey
    from exporter.commands.audit.audit_evidence import ModelConfig, Part
    from exporter.config.configuration import Config
    from exporter.triton.model import ModelStatistics

SETUP_SHARE: Final = 0.25
"""Limit of the time for reading the inventory, as a share of the duration."""
WINDOW_END_SHARE: Final = 0.6
"""End of the window without own requests, as a share of the duration."""
PROBES_END_SHARE: Final = 0.95
LONGEST_CALL_SECONDS: Final = 1.0
MOST_TRACE_SETTINGS: Final = 200
"""Models whose trace settings are read; the global ones always are."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Time as the audit sees it; tests bring their own."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class _KeptPage(HttpClient):
    """Keeps the latest page: one fetch serves the cross-check and all other checks."""

    body: bytes = b""
    problem: str = ""

    def get(self, path: str, *, timeout_seconds: float) -> bytes:
        self.body = b""
        try:
            self.body = super().get(path, timeout_seconds=timeout_seconds)
        except errors.TritonError as error:
            self.problem = f"{type(error).__name__}: {error}"
            raise
        return self.body


def look(
    config: Config,
    duration_seconds: float,
    tell: Callable[[str], None],
    pace: Pace | None = None,
) -> Evidence:
    """Observe the target for `duration_seconds`, and a moment more.

    `tell` is given one line for each step. Nothing of the server's making is raised.

    Raises:
        ConfigError: a TLS file of the target cannot be read.
    """
    pace = pace or Pace()
    metrics = config.target.metrics
    access = Access.detached(
        connect.grpc_client(config.target),
        http=connect.http_client(config.target),
        metrics=None if metrics is None else _KeptPage(metrics, connections=1),
        models=config.models,
        clock=pace.clock,
    )
    try:
        return _Look(config, access, duration_seconds, tell, pace).take()
    finally:
        for client in (access.grpc, access.http, access.metrics):
            if client is not None:
                client.close()


class _Look:
    def __init__(
        self,
        config: Config,
        access: Access,
        duration_seconds: float,
        tell: Callable[[str], None],
        pace: Pace,
    ) -> None:
        self._config = config
        self._access = access
        self._duration = duration_seconds
        self._tell = tell
        self._pace = pace
        self._began = pace.clock()
        self._problems: dict[Part, str] = {}
        self._cross_check = (
            CrossCheck(access.metrics, LONGEST_CALL_SECONDS) if access.metrics else None
        )
        self._disagreements: tuple[Disagreement, ...] = ()

    def take(self) -> Evidence:
        """Every step in turn."""
        self._tell(f"asking {self._config.target.grpc} what it is and holds")
        http_ready = self._http_ready()
        try:
            self._access.grpc.live(timeout_seconds=self._patience())
        except errors.TritonError as error:
            return Evidence(no_answer=str(error), http_ready=http_ready)
        unreadable = self._inventory()
        inventory = self._access.board.current
        if not inventory.up:
            reason = f"it is live, but its state cannot be read in {LONGEST_CALL_SECONDS:g} s"
            return Evidence(no_answer=reason, http_ready=http_ready)
        configs = self._configs()
        traces = self._trace_settings()
        power = PowerLook(self._config.power, self._access, self._pace.clock)
        first, first_page = self._look_with_page()
        window_began = self._now()
        power.begin()
        self._wait_for_window(len(inventory.models), power)
        second = self._statistics()
        window_seconds = self._now() - window_began
        taken = power.end()
        probed = self._ask(second, first)
        last, last_page = self._look_with_page()
        seen = inventory.models.keys() | unreadable.keys()
        ready = {(e.name, e.version) for e in inventory.index if e.ready}
        return Evidence(
            inventory=inventory,
            http_ready=http_ready,
            window_seconds=window_seconds,
            problems=self._problems,
            unreadable=unreadable,
            unread=len(ready - seen),
            configs=configs,
            first=first,
            second=second,
            last=last,
            first_page=first_page,
            last_page=last_page,
            disagreements=self._disagreements,
            trace_settings=traces,
            probes=probed.targets,
            not_asked=probed.not_asked,
            power=taken,
        )

    def _now(self) -> float:
        return self._pace.clock() - self._began

    def _patience(self, share: float = 1.0) -> float:
        """Return the longest wait for one answer: the rest of a share of the duration."""
        left = self._duration * share - self._now()
        return min(LONGEST_CALL_SECONDS, max(0.05, left))

    def _late(self, share: float) -> bool:
        return self._now() >= self._duration * share

    def _http_ready(self) -> bool | None:
        if self._access.http is None:
            self._problems["http"] = "the config has no HTTP address"
            return None
        try:
            self._access.http.get(
                "/v2/health/ready", timeout_seconds=self._patience(SETUP_SHARE)
            )
        except errors.TritonError as error:
            if str(error).startswith("HTTP 400"):
                return False  # Triton's word for it
            self._problems["http"] = str(error)
            return None
        return True

    def _inventory(self) -> dict[ModelKey, str]:
        """Fill the board; why listed models could not be read."""
        left = max(0.1, self._duration * SETUP_SHARE - self._now())
        access = self._access
        # The collector reads signatures within half of its deadline.
        collector = ServerSettings(
            timeout_seconds=self._patience(), deadline_seconds=2 * left
        ).build(access)
        try:
            collector.collect()
        except errors.PartialResultError:
            # It is live, but does not list its models: nothing can be inspected.
            access.board.publish(Inventory())
        refused: dict[ModelKey, str] = {}
        current = access.board.current
        for entry in current.index:
            key = (entry.name, entry.version)
            if not entry.ready or key in current.models:
                continue
            if self._late(SETUP_SHARE):
                break
            try:
                access.grpc.model_spec(*key, timeout_seconds=self._patience())
            except errors.TritonError as error:
                refused[key] = str(error)
        return refused

    def _configs(self) -> dict[ModelKey, ModelConfig]:
        configs: dict[ModelKey, ModelConfig] = {}
        if self._access.http is None:
            self._problems["configurations"] = "they are read over HTTP, which is off"
            return configs
        for key in self._access.board.current.models:
            if self._late(SETUP_SHARE):
                self._problems["configurations"] = "there was no time to read them all"
                break
            try:
                body = self._access.http.get(
                    config_path(*key), timeout_seconds=self._patience()
                )
                configs[key] = parse_config(body)
            except errors.TritonError as error:
                self._problems["configurations"] = str(error)
        return configs

    def _trace_settings(self) -> dict[str, dict[str, tuple[str, ...]]]:
        settings: dict[str, dict[str, tuple[str, ...]]] = {}
        models = sorted({name for name, _ in self._access.board.current.models})
        for name in ("", *models[:MOST_TRACE_SETTINGS]):
            if name and self._late(SETUP_SHARE):
                break
            try:
                settings[name] = self._access.grpc.trace_settings(
                    name, timeout_seconds=self._patience()
                )
            except errors.TritonError as error:
                self._problems["traces"] = str(error)
                break
        return settings

    def _wait_for_window(self, models: int, power: PowerLook) -> None:
        end = self._duration * WINDOW_END_SHARE
        self._tell(
            f"{many(models, 'model')}; watching production for {max(0.0, end - self._now()):.0f} s"
        )
        while (left := end - self._now()) > 0:
            self._pace.sleep(min(left, 1.0))
            power.read()

    def _ask(
        self,
        second: Mapping[ModelKey, ModelStatistics],
        first: Mapping[ModelKey, ModelStatistics],
    ) -> audit_requests.Asked:
        def traffic(key: ModelKey) -> int:
            after, before = second.get(key), first.get(key)
            return after.success.count - before.success.count if after and before else 0

        return audit_requests.ask(
            self._config.all_probes(),
            self._access,
            traffic,
            deadline=self._began + self._duration * PROBES_END_SHARE,
            statistics="statistics" not in self._problems,
            pace=self._pace,
            tell=self._tell,
        )

    def _statistics(self) -> dict[ModelKey, ModelStatistics]:
        if "statistics" in self._problems:
            return {}  # who did not answer once costs a full timeout each time
        try:
            entries = self._access.grpc.statistics(timeout_seconds=LONGEST_CALL_SECONDS)
        except errors.TritonError as error:
            self._problems["statistics"] = str(error)
            return {}
        return {
            (entry.name, entry.version): entry
            for entry in entries
            if self._access.models.matches(entry.name)
        }

    def _look_with_page(self) -> tuple[dict[ModelKey, ModelStatistics], Page | None]:
        before = self._statistics()
        kept = self._access.metrics
        if self._cross_check is None or not isinstance(kept, _KeptPage):
            self._problems["metrics"] = "the config has no address of them"
            return before, None
        counted = self._cross_check.read()
        page = self._page(kept)
        after = self._statistics()
        if counted is not None:
            self._disagreements = tuple(
                Disagreement((s.labels[0], s.labels[1]), s.labels[2], s.value)
                for s in self._cross_check.compare(before, counted, after)
                if s.spec is catalogue.STATISTICS_DISAGREEMENT
            )
        return after, page

    def _page(self, kept: _KeptPage) -> Page | None:
        if not kept.body:
            self._problems["metrics"] = kept.problem or "the page is empty"
            return None
        series: dict[str, list[tuple[Mapping[str, str], float]]] = defaultdict(list)
        try:
            for name, labels, value in parse_text(kept.body):
                series[name].append((labels, value))
        except ValueError as error:
            self._problems["metrics"] = f"the page is not Prometheus text: {error}"
            return None
        return Page(self._now(), {name: tuple(rows) for name, rows in series.items()})
