"""Rendered /metrics pages, with a bound on the memory that unread ones take.

A page stays in memory until its client has read it, so many clients that do not read would
keep as many pages. Beyond `MAX_UNREAD_BYTES` a scrape gets the latest page of its format,
which is in memory already.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_UNREAD_BYTES: Final = 32 << 20
"""All pages that are being read, together."""
_SHARED_SECONDS: Final = 5.0
"""Age limit of a shared page: slightly old values are better than no scrape."""


class Rendered(NamedTuple):
    """A page and its headers."""

    body: bytes
    headers: Mapping[str, str]


@dataclass(slots=True)
class _Page:
    rendered: Rendered
    at_seconds: float
    readers: int = 0


class ScrapePages:
    """The pages that are being read. For one thread, the event loop's."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._latest: dict[str, _Page] = {}
        self._pages: dict[int, _Page] = {}
        self.unread_bytes = 0
        """Of pages that are being read, each counted once."""

    def take(self, kind: str, render: Callable[[], Rendered]) -> Rendered:
        """Return a page of a kind (its format and encoding) for one more reader."""
        page = self._latest.get(kind)
        if page is None or not self._shall_share(page):
            page = self._latest[kind] = _Page(render(), self._clock())
        if page.readers == 0:
            self._pages[id(page.rendered)] = page
            self.unread_bytes += len(page.rendered.body)
        page.readers += 1
        return page.rendered

    def give_back(self, rendered: Rendered) -> None:
        """One reader has read the page, or has left."""
        page = self._pages[id(rendered)]
        page.readers -= 1
        if page.readers == 0:
            del self._pages[id(rendered)]
            self.unread_bytes -= len(rendered.body)
            # What nobody reads is not kept for those who may come.
            for kind in [k for k, latest in self._latest.items() if latest is page]:
                del self._latest[kind]

    def _shall_share(self, page: _Page) -> bool:
        return (
            self.unread_bytes > MAX_UNREAD_BYTES
            and self._clock() - page.at_seconds < _SHARED_SECONDS
        )
