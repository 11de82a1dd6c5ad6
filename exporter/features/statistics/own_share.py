"""Splits the increases of a Triton counter into our own and production requests."""

from __future__ import annotations

from collections import deque
from typing import Final

UNRESOLVED_READS: Final = 120
"""Reads for which a request without an answer is still expected: ten minutes by default.

An overloaded server executes it when those before it in the queue are done.
"""


class OwnShare:
    """Splits a counter's increase into our own and production requests."""

    def __init__(self, finished: int = 0, unresolved: int = 0) -> None:
        self.possible_shown = 0
        """Requests of `possible` that appeared in the latest read."""
        self.missing = 0
        """Finished requests that Triton has not counted yet, or never will."""
        self.resolved = 0
        """Unresolved requests that appeared in the latest read."""
        self.unattributed = 0
        """Requests counted as ours in the latest read that may be production's."""
        self._matched = finished
        self._held = 0
        self._refused = 0
        self._unresolved_before = unresolved
        self._reads = 0
        self._doubtful: deque[tuple[int, int]] = deque()
        """Unresolved requests not seen yet: the last read that expects them, and how many."""
        self._finished_before = (finished, finished)
        """Finished requests at the read before the last one, and at the last one."""

    def production(
        self,
        finished: int,
        in_flight: int,
        rise: int,
        unresolved: int = 0,
        possible: int = 0,
    ) -> int:
        """Return production's part of `rise`, given our finished requests and those in flight.

        As many requests as are in flight are held back until the next read. Of
        `possible`, as many as the remaining increase are attributed to us.
        """
        self._expect(unresolved)
        before_last, last = self._finished_before
        self._finished_before = (last, finished)
        # Finished at the read before the last, and not counted by the last.
        self._matched = max(self._matched, before_last)
        pool = rise + self._held
        # Oldest first: requests that Triton has certainly counted by now.
        pool -= self._match(last, pool)
        self.possible_shown = min(possible, pool)
        pool -= self.possible_shown
        pool -= self._match(finished, pool)
        self.missing = max(0, finished - self._matched)
        self.resolved = self.resolve(pool)
        pool -= self.resolved
        self.unattributed = self.possible_shown + self.resolved
        self._held = min(in_flight, pool)
        return pool - self._held

    def _expect(self, unresolved: int) -> None:
        """Begin a read: expect the requests that were given up since the last one."""
        self._reads += 1
        while self._doubtful and self._doubtful[0][0] < self._reads:
            self._doubtful.popleft()
        given_up = unresolved - self._unresolved_before
        self._unresolved_before = unresolved
        if given_up > 0:
            self._doubtful.append((self._reads + UNRESOLVED_READS - 1, given_up))

    def _match(self, finished: int, pool: int) -> int:
        """Remove our finished requests from `pool`; return how many it contained."""
        ours = max(0, min(finished - self._matched, pool))
        self._matched += ours
        return ours

    @property
    def undecided(self) -> bool:
        """True while the next read may add to production's part of the increase so far.

        Part of it is held back, or belongs to own requests that Triton has not counted
        yet.
        """
        return self._held > 0 or self.missing > 0

    def refuse(self, count: int, *, for_now: bool) -> None:
        """Take back `count` requests that the latest read credited to production.

        With `for_now` the next read decides again. Without it, requests that are taken
        back a second time are ours.
        """
        ours = 0 if for_now else min(count, self._refused)
        self._refused = 0 if for_now else count - ours
        self._held += count - ours

    def started_over(self, finished: int) -> None:
        """Stop waiting for finished requests that were lost when the counters restarted."""
        self._matched = max(self._matched, finished)

    def server_gone(self, finished: int) -> None:
        """Account for a server that has ended: its uncounted requests are lost.

        The requests that were held back can no longer be attributed: they are left out.
        """
        self.started_over(finished)
        self._held = self._refused = 0

    def give_up(self, unresolved: int) -> None:
        """Count requests to a server that has ended as given up."""
        self._doubtful.clear()
        self._unresolved_before = unresolved

    def resolve(self, most: int) -> int:
        """Stop expecting up to `most` unresolved requests, the oldest; return how many."""
        left = most
        while left and self._doubtful:
            last_read, count = self._doubtful.popleft()
            if count > left:
                self._doubtful.appendleft((last_read, count - left))
            left -= min(count, left)
        return most - left
