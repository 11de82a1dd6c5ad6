"""Requests that Triton counted between the end of one tritonwatch process and the next.

Triton continues to count while the sidecar is down. The latest reading is kept in a
file, so the increase until the first reading of the next process is known. It includes
the last requests of the process that ended, so it cannot be attributed.
"""

from __future__ import annotations

from dataclasses import astuple
from typing import TYPE_CHECKING, Any, Final

import structlog

from exporter.features.statistics.production_counts import counters_of
from exporter.system import state_file
from exporter.system.local_server import ServerProcess

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from exporter.access.inventory import ModelKey
    from exporter.triton.protocol_types import ModelStatistics

log = structlog.get_logger()

_VERSION: Final = 1


class UnwatchedGap:
    """The latest reading of each model's counters, over a restart of this process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_unsaved_logged = False
        self._server: ServerProcess | None = None
        self._addresses: frozenset[str] = frozenset()
        self._before: dict[ModelKey, tuple[int, list[int]]] = {}
        self._read()

    def requests(
        self,
        key: ModelKey,
        raw: ModelStatistics,
        server: ServerProcess | None,
        addresses: frozenset[str] = frozenset(),
    ) -> int:
        """Return how many requests to a model the previous process did not see.

        `addresses` are those of the server's name; none if it has no name. 0 without an
        earlier reading, or if the server is known to have been restarted or replaced.
        """
        before = self._before.pop(key, None)
        is_another = None not in (server, self._server) and server != self._server
        is_another |= bool(self._addresses) and not addresses <= self._addresses
        if before is None or is_another:
            return 0
        requests, counters = before
        now = list(counters_of(raw))
        if len(now) != len(counters) or any(
            new < old for old, new in zip(counters, now, strict=True)
        ):
            return 0
        return raw.success.count + raw.fail.count - requests

    def save(
        self,
        readings: Mapping[ModelKey, ModelStatistics],
        server: ServerProcess | None,
        addresses: frozenset[str] = frozenset(),
    ) -> None:
        """Write the readings to the file; an error is logged once."""
        models = [
            [*key, raw.success.count + raw.fail.count, list(counters_of(raw))]
            for key, raw in readings.items()
        ]
        content = {
            "version": _VERSION,
            "server": server and astuple(server),
            "addresses": sorted(addresses),
            "models": models,
        }
        problem = state_file.write(self._path, content)
        if problem and not self._is_unsaved_logged:
            log.error("statistics_state_not_saved", reason=problem)
        self._is_unsaved_logged = bool(problem)

    def _read(self) -> None:
        try:
            content = state_file.read(self._path)
        except OSError as error:
            log.warning(
                "statistics_state_not_read", file=str(self._path), reason=str(error)
            )
            return
        if content is None:
            return
        try:
            addresses = frozenset(map(str, content.get("addresses", ())))
            self._server, self._before = _checked(content)
            self._addresses = addresses
        except (KeyError, TypeError, ValueError):
            state_file.set_aside(self._path, "not a state of the statistics")


def _checked(
    content: dict[str, Any],
) -> tuple[ServerProcess | None, dict[ModelKey, tuple[int, list[int]]]]:
    if content["version"] != _VERSION:
        raise ValueError(f"found version {content['version']}; want {_VERSION}")
    server = content["server"] and ServerProcess(*map(int, content["server"]))
    return server, {
        (str(name), str(version)): (int(requests), [int(value) for value in counters])
        for name, version, requests, counters in content["models"]
    }
