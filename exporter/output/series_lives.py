"""Start time of the total of each exposed counter and histogram.

Prometheus (created timestamps) and OTLP (start times) use it to detect resets.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from exporter.samples import HistogramSample, Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from exporter.samples import AnySample

_MOST_SERIES: Final = 200_000


@dataclass(slots=True)
class _Life:
    created: float
    total: float


class SeriesLives:
    """Remembers each series from its first reading, also while it is not exposed.

    A series that is new, or whose total fell, began at zero after the previous reading. A
    series that is absent for a while and returns with at least its old total is the same
    one. Of more than `most_series` the absent ones are forgotten, the oldest first. Times
    are seconds since the epoch.
    """

    def __init__(self, started: float, most_series: int = _MOST_SERIES) -> None:
        self._read_at = started
        self._most = most_series
        self._lives: dict[tuple[str, tuple[str, ...]], _Life] = {}
        self._lock = threading.Lock()

    def dated(
        self, exposed: Iterable[AnySample], clock: Callable[[], float]
    ) -> Iterator[AnySample]:
        """The samples of one reading, each total with its creation time.

        `exposed` is iterated under the lock: an older reading that came after a newer
        one would look like totals that fell.
        """
        with self._lock:
            now, samples = clock(), list(exposed)
            # A clock that was set back must not put a beginning into the future.
            if now < self._read_at:
                for life in self._lives.values():
                    life.created = min(life.created, now)
            before, self._read_at = min(self._read_at, now), now
            dated = [
                self._with_date(sample, before)
                if sample.spec.kind in {"counter", "histogram"}
                and not sample.spec.outlives_process
                else sample
                for sample in samples
            ]
            if len(self._lives) > self._most:
                present = {(s.spec.name, s.labels) for s in samples}
                self._drop_absent(present)
        yield from dated

    def _with_date(self, sample: AnySample, before: float) -> AnySample:
        key = sample.spec.name, sample.labels
        total = _total(sample)
        life = self._lives.get(key)
        if life is None or total < life.total:
            life = self._lives[key] = _Life(before, total)
        life.total = total
        return replace(sample, created=life.created)

    def _drop_absent(self, present: set[tuple[str, tuple[str, ...]]]) -> None:
        for key in [key for key in self._lives if key not in present]:
            if len(self._lives) <= self._most:
                break
            del self._lives[key]


def _total(sample: AnySample) -> float:
    if isinstance(sample, Sample):
        return sample.value
    if isinstance(sample, HistogramSample):
        return sample.histogram.count
    return sample.count
