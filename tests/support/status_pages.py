"""Parts that tests of the status page share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from waiting import patience

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

WAIT_MS = 1e3 * patience(30)
SLOS = [
    {
        "kind": "availability",
        "name": "answers",
        "objective_ratio": 0.99,
        "source": "probes",
    }
]


def table(page: Page, name: str) -> Locator:
    """The region of a table, by its heading."""
    return page.get_by_role("region", name=name, exact=True)
