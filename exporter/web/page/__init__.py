"""The status page: one self-contained document and its content security policy."""

from __future__ import annotations

import base64
import functools
import hashlib
from importlib.resources import files
from typing import Final

_PARTS: Final = files(__name__)


@functools.cache
def document() -> tuple[bytes, str]:
    """The page, and the Content-Security-Policy that lets nothing but it run.

    Everything the page shows it fetches from /api/v1/status; the document itself is the
    same for everybody and holds nothing of what is watched.
    """
    styles = [_read("vendor/uPlot.min.css"), _read("page.css")]
    scripts = [
        _read("vendor/uPlot.iife.min.js"),
        _read("values.js")
        + _read("charts.js")
        + _read("sections.js")
        + _read("attention.js")
        + _read("page.js"),
    ]
    page = (
        _read("page.html")
        .replace("<!-- styles -->", "".join(f"<style>{s}</style>" for s in styles))
        .replace("<!-- scripts -->", "".join(f"<script>{s}</script>" for s in scripts))
    )
    policy = (
        "default-src 'none'; "
        f"script-src {' '.join(map(_hash, scripts))}; "
        f"style-src {' '.join(map(_hash, styles))}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    return page.encode(), policy


def _read(name: str) -> str:
    return _PARTS.joinpath(name).read_text("utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
