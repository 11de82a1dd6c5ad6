"""The machine's Chromium, for tests of pages."""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING

from playwright.sync_api import sync_playwright
from requirements import require

if TYPE_CHECKING:
    from collections.abc import Generator

    from playwright.sync_api import Browser


@contextlib.contextmanager
def chromium(*arguments: str) -> Generator[Browser]:
    """Without its sandbox: the tests may run as root, for whom there is none."""
    require("chromium")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", *arguments],
        )
        with contextlib.closing(running):
            yield running
