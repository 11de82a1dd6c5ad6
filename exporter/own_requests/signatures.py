"""Reading a model's signature again when an answer casts doubt on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from exporter import errors

if TYPE_CHECKING:
    from exporter.access.collector_base import Access
    from exporter.triton.protocol_types import ModelSpec


def changed_signature(
    access: Access, used: ModelSpec, *, timeout_seconds: float
) -> ModelSpec | None:
    """Return the signature that a model version has now, or None if it is `used`.

    Call it when a request made from `used` was refused or got a wrong answer: the model
    may have been reloaded under the same version. The server is read at most once in
    REREAD_SECONDS for each version; a change is published to all other users.
    """
    key = used.key
    # Probes by both protocols fail together: the second takes what the first has read.
    with access.board.reread_lock(key):
        known = access.board.current.models.get(key)
        if known is None:
            return None
        if known != used:
            return known
        if not access.board.may_reread(key, access.clock()):
            return None
        try:
            fresh = access.server.model_spec(*key, timeout_seconds=timeout_seconds)
        except errors.TritonError:
            # Not readable now: the verdict on the request stands as it is.
            return None
        if fresh == used:
            return None
        access.board.reloaded(key, fresh)
        return fresh
