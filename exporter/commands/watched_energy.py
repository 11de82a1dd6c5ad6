"""Energy of champion and challenger as the sidecar beside the server sees it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

import urllib3

from exporter.features.comparison.compared_resources import ENERGY, READ, Resources
from exporter.features.comparison.confidence import WARM_UP_PAIRS
from exporter.output.exposition import parse_text

if TYPE_CHECKING:
    from exporter.access.inventory import ModelKey
    from exporter.features.comparison.confidence import Interval

LOOK_SECONDS: Final = 2.0
"""Time between two reads; that sidecar updates energy once a window, 5 s by default."""
_TIMEOUT_SECONDS: Final = 2.0
_MOST_BYTES: Final = 64 << 20
_OK: Final = 200


class WatchedEnergy:
    """Joules an inference of both, from the /metrics of a sidecar.

    To that one our requests are a client's like any other: their energy is in the
    models' own. Whoever else asks the two is in it too, and should be asking alike.
    """

    def __init__(self, url: str, alpha: float) -> None:
        self._url = url
        self._resources = Resources(alpha, lambda **_: ())
        self._pool = urllib3.PoolManager(1)
        self.problem = ""
        """Reason why there is no value yet."""

    def look(self, keys: tuple[ModelKey, ModelKey]) -> None:
        """Read the page; missing series become the problem."""
        try:
            answer = self._pool.request(
                "GET",
                self._url,
                timeout=_TIMEOUT_SECONDS,
                retries=False,
                redirect=False,
                preload_content=False,
            )
            try:
                body = answer.read(_MOST_BYTES)
            finally:
                answer.close()
            if answer.status != _OK:
                self.problem = f"{self._url} answered HTTP {answer.status}"
                return
            self._take(body, keys)
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            self.problem = f"{self._url} is no sidecar's page: {error}"

    @property
    def interval(self) -> Interval | None:
        """The challenger's joules an inference over the champion's, less 1."""
        return self._resources.intervals(("energy",)).get("energy")

    def close(self) -> None:
        """Close the connection."""
        self._pool.clear()

    def _take(self, body: bytes, keys: tuple[ModelKey, ModelKey]) -> None:
        found: dict[str, dict[ModelKey, float]] = defaultdict(dict)
        for name, labels, value in parse_text(body):
            if name in READ:
                key = (labels["model"], labels["version"])
                found[name][key] = found[name].get(key, 0.0) + value
        self._resources.take(found, keys)
        missing = set(keys) - found[ENERGY].keys()
        lacking = [f"{model} {version}" for model, version in missing]
        if lacking:
            self.problem = (
                f"{self._url} has no {ENERGY} of {' and '.join(sorted(lacking))}"
            )
        else:
            self.problem = (
                f"{self._resources.windows} of {WARM_UP_PAIRS} windows so far, one of "
                "that sidecar's power.window_seconds each; give --duration more"
            )
