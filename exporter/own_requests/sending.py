"""Sends a request of our own by the protocol of its target."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
