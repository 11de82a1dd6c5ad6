"""Rendered pages, with bounds on the memory and the time that they take.

So are /metrics and the documents of the status page. A page stays in memory until its client has read it, so many clients that do not read would
keep as many pages. Beyond `MAX_UNREAD_BYTES` a client gets the latest page of its kind,
which is in memory already. So it does when more than `RENDERING_SHARE` of the time went
into rendering: a flood of scrapes would leave no time for connections and probes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_UNREAD_BYTES: Final = 32 << 20
"""Limit of all pages together that are being read."""
_SHARED_SECONDS: Final = 5.0
"""Age limit of a shared page: slightly old values are better than no scrape."""


RENDERING_SHARE: Final = 0.1
"""Share of the time for rendering, beyond a burst."""
_BURST_SECONDS: Final = 0.5
"""Rendering time at once."""


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
        self._paid_at = 0.0
        """Time at which past rendering is within its share."""
        self.unread_bytes = 0
        """Bytes of pages that are being read, each counted once."""

    def take(self, kind: str, render: Callable[[], Rendered]) -> Rendered:
        """Return a page of a kind (a format and encoding, a document) for one more reader."""
        page = self._latest.get(kind)
        if page is None or not self._shall_share(page):
            page = self._latest[kind] = self._rendered(render)
        if page.readers == 0:
            self._pages[id(page.rendered)] = page
            self.unread_bytes += len(page.rendered.body)
        page.readers += 1
        return page.rendered

    def give_back(self, rendered: Rendered) -> None:
        """Release a page that one reader has read, or given up."""
        page = self._pages[id(rendered)]
        page.readers -= 1
        if page.readers == 0:
            del self._pages[id(rendered)]
            self.unread_bytes -= len(rendered.body)
            # A page without readers is dropped, unless later ones will have to share it.
            if self._rendered_much:
                return
            for kind in [k for k, latest in self._latest.items() if latest is page]:
                del self._latest[kind]

    def _rendered(self, render: Callable[[], Rendered]) -> _Page:
        began = self._clock()
        rendered = render()
        now = self._clock()
        self._paid_at = max(self._paid_at, began) + (now - began) / RENDERING_SHARE
        return _Page(rendered, now)

    @property
    def _rendered_much(self) -> bool:
        return self._paid_at - self._clock() > _BURST_SECONDS / RENDERING_SHARE

    def _shall_share(self, page: _Page) -> bool:
        return (
            self.unread_bytes > MAX_UNREAD_BYTES or self._rendered_much
        ) and self._clock() - page.at_seconds < _SHARED_SECONDS
