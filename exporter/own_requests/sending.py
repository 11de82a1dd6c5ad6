"""Sends a request of our own by the protocol of its target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from exporter import errors
from exporter.own_requests.payload import chosen_inputs
from exporter.triton import generate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from exporter.access.collector_base import Access
    from exporter.access.probe_base import Transport
    from exporter.own_requests.payload import InputSettings
    from exporter.triton.protocol_types import InferReply, InferRequest, ModelSpec


def speaks_http(spec: ModelSpec, inputs: Mapping[str, InputSettings]) -> bool:
    """Return whether a request with the inputs of these settings can go over HTTP.

    Decoupled models answer on `generate_stream` only, which carries one row at a time, of
    plain inputs.
    """
    if not spec.decoupled:
        return True
    chosen = chosen_inputs(spec, inputs)
    shapes = (inputs[t.name].shape for t in chosen if t.name in inputs)
    batch = 1 if spec.max_batch_size > 0 else 0
    return generate.accepts(spec, chosen) and all(
        shape is None or (len(shape) <= 1 + batch and (not batch or shape[0] == 1))
        for shape in shapes
    )


def send(
    access: Access,
    spec: ModelSpec,
    protocol: Transport,
    request: InferRequest,
    *,
    timeout_seconds: float,
) -> InferReply:
    """Return the reply to a request; of a decoupled model the whole stream.

    Raises:
        TritonError: there is none.
    """
    http = access.http if protocol == "http" else None
    if http is not None and spec.decoupled:
        return generate.infer_stream(
            http, request, spec, timeout_seconds=timeout_seconds
        )
    if http is not None:
        return http.infer(request, timeout_seconds=timeout_seconds)
    if spec.decoupled:
        return access.server.infer_stream(request, timeout_seconds=timeout_seconds)
    return access.grpc.infer(request, timeout_seconds=timeout_seconds)


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
