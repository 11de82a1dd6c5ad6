"""The pages: self-contained documents and their content security policies."""

from __future__ import annotations

import functools
import hashlib
from base64 import b64encode
from importlib.resources import files
from typing import Final

_PARTS: Final = files(__name__)


@functools.cache
def document() -> tuple[bytes, str]:
    """Return the status page, and the policy that lets nothing but its script run.

    Everything the page shows it fetches from /api/v1/status; the document itself is the
    same for everybody and holds nothing of what is watched.
    """
    scripts = [
        _read("vendor/uPlot.iife.min.js"),
        _read("values.js")
        + _read("charts.js")
        + _read("sections.js")
        + _read("attention.js")
        + _read("page.js"),
    ]
    styles = [_read("vendor/uPlot.min.css"), _read("page.css")]
    return _with(_read("page.html"), styles, scripts)


def runbook(title: str, body: str) -> tuple[bytes, str]:
    """Return the page of a runbook, and its policy; `title` and `body` are HTML."""
    page = _read("runbook.html").replace("<!-- title -->", title)
    return _with(page.replace("<!-- body -->", body), [_read("page.css")], [])


def _with(page: str, styles: list[str], scripts: list[str]) -> tuple[bytes, str]:
    page = page.replace(
        "<!-- styles -->", "".join(f"<style>{s}</style>" for s in styles)
    ).replace("<!-- scripts -->", "".join(f"<script>{s}</script>" for s in scripts))
    policy = (
        "default-src 'none'; "
        f"script-src {_hashes(scripts)}; "
        f"style-src {_hashes(styles)}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    return page.encode(), policy


def _read(name: str) -> str:
    return _PARTS.joinpath(name).read_text("utf-8")


def _hashes(texts: list[str]) -> str:
    digests = [hashlib.sha256(text.encode()).digest() for text in texts]
    return " ".join(f"'sha256-{b64encode(d).decode()}'" for d in digests) or "'none'"
