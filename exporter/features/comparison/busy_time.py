"""How long a shadow comparison kept the server busy: never less than it was."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class _Mark:
    """Both bounds at one look, in seconds since the beginning."""

    waited: float = 0.0
    booked: float = 0.0
    served: float = 0.0
    """Production's busy seconds, for which no bound is needed."""


class BusyTime:
    """Busy seconds of both models on our behalf, bounded from above. Not thread-safe.

    What was waited for answers is known at once and has queueing in it; what Triton books
    for our requests is known a look or two later and has our other probes in it. Up to two
    looks ago the lesser of the two counts, from there on what was waited: so a model that
    gets slower is paid for before anything more is asked of it.
    """

    def __init__(self) -> None:
        self._waited = 0.0
        self._settled = 0.0
        """Of stretches with production that are over."""
        self._began: _Mark | None = None
        """The stretch under way."""
        self._known = 0.0
        """Of it, until `_edge`, the look before the last two."""
        self._edge = _Mark()
        self._latest = (_Mark(), _Mark())

    @property
    def seconds(self) -> float:
        """So far, without what was asked while production rested."""
        if self._began is None:
            return self._settled
        return self._settled + self._known + self._waited - self._edge.waited

    @property
    def known(self) -> tuple[float, float]:
        """Until the latest look whose pairs are booked: ours, and production's then."""
        if self._began is None:
            return self._settled, self._latest[1].served
        return self._settled + self._known, self._edge.served

    def waited(self, seconds: float) -> None:
        """For so long answers were waited for, in all."""
        self._waited = max(self._waited, seconds)

    def look(self, booked: float, served: float, *, paid: bool) -> None:
        """So much was booked for us and for production in all.

        `paid` unless production rested since the last look.
        """
        edge, last = self._latest
        now = _Mark(self._waited, booked, served)
        if not paid or booked < last.booked:
            # Production rests, or another model's time is booked from here on.
            self._settled, self._began, self._known = self.seconds, None, 0.0
            self._latest = (now, now)
            return
        if self._began is None:
            # What was asked since the last look was asked of a model at work.
            self._began = edge = last
        self._known = min(edge.waited - self._began.waited, booked - self._began.booked)
        self._edge, self._latest = edge, (last, now)
