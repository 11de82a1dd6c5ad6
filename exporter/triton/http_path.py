"""Paths of models in Triton's HTTP interface."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

# Triton 2.51 takes a name from the path as it stands and does not decode "%2B". These
# characters may stand in a path unescaped (RFC 3986, pchar).
_LITERAL: Final = "!$&'()*+,;=:@"
_WHOLE: Final = re.compile(rf"[A-Za-z0-9._~{re.escape(_LITERAL)}-]+")


def model_path(model: str, version: str = "") -> str:
    """Return the path of a model, or of one version of it, without a slash at its end."""
    path = f"/v2/models/{quote(model, safe=_LITERAL)}"
    return f"{path}/versions/{quote(version, safe='')}" if version else path


def control_path(model: str) -> str:
    """Return the path under which a model is loaded and unloaded."""
    return f"/v2/repository/models/{quote(model, safe=_LITERAL)}"


def is_literal(model: str) -> bool:
    """Return whether the name stands in a path as it is, so that Triton finds it."""
    return _WHOLE.fullmatch(model) is not None
