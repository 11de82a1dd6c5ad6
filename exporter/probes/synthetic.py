"""Tensors made from a model's metadata, really sent through it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from exporter import errors
from exporter.inventory import latest_version
from exporter.probes.base import (
    Outcome,
    ProbeSettings,
    Target,
    Transport,
    Verdict,
)
from exporter.probes.checks import Check, output_fault
from exporter.probes.payload import InputSettings, make_payload
from exporter.settings import Settings
from exporter.triton.model import InferReply, InferRequest, ModelSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from exporter.collectors.base import Access
    from exporter.inventory import Inventory, ModelKey
    from exporter.own_traffic import Touched

_OUTCOMES: dict[type[errors.TritonError], Outcome] = {
    errors.DeadlineError: "timeout",
    errors.UnavailableError: "unavailable",
    errors.InvalidRequestError: "invalid",
    errors.ModelError: "model_error",
    errors.ProtocolError: "bad_output",
}


class ModelOverride(Settings):
    """What differs for one model."""

    inputs: dict[str, InputSettings] = Field(default={}, max_length=1000)
    """By input name: shape, range or values."""
    parameters: dict[str, bool | int | str] = Field(default={}, max_length=100)
    """Request parameters."""
    checks: frozenset[Check] | None = Field(default=None)
    """Value checks in place of the probe's own."""


class SyntheticSettings(ProbeSettings):
    """Made-up tensors through every ready model, over gRPC and over HTTP."""

    kind: Literal["synthetic"] = "synthetic"
    protocols: tuple[Transport, ...] = Field(default=("grpc", "http"), min_length=1)
    """Decoupled models answer over gRPC only and are probed so."""
    checks: frozenset[Check] = Field(default=frozenset({"nan", "inf"}))
    """What makes a successful answer a bad output, beside wrong dtype, shape or size."""
    overrides: dict[str, ModelOverride] = Field(default={}, max_length=10_000)
    """By model name."""
    seed: int = Field(default=0, ge=0)
    """Seed of the made-up tensors."""

    def build(self, access: Access) -> SyntheticProbe:
        """The probe."""
        return SyntheticProbe(self, access)


class SyntheticProbe:
    """Asks one model by one protocol at a time."""

    def __init__(self, settings: SyntheticSettings, access: Access) -> None:
        self._settings = settings
        self._access = access
        self._rng = np.random.default_rng(settings.seed)
        self._rng_lock = threading.Lock()

    def targets(self, inventory: Inventory) -> Sequence[Target]:
        """Every ready model that is not left out, by every protocol it speaks."""
        protocols: list[Transport] = [
            p
            for p in self._settings.protocols
            if p == "grpc" or self._access.http is not None
        ]
        return [
            Target(key, protocol)
            for key, spec in inventory.models.items()
            if self._settings.models.matches(spec.name)
            for protocol in protocols
            if protocol == "grpc" or not spec.decoupled
        ]

    def attempt(self, target: Target) -> Verdict:
        """Send one request and judge what comes back."""
        spec = self._access.board.current.models.get(target.key)
        if spec is None:
            return Verdict(
                "invalid", detail="the model is not in the inventory any more"
            )
        override = self._settings.overrides.get(spec.name, ModelOverride())
        request_id = self._access.own.new_request_id(self._settings.kind)
        context = self._access.spans.begin()
        headers = {"traceparent": context.traceparent} if context else {}
        verdict = self._ask(target, spec, override, request_id, headers)
        if context:
            self._access.spans.end(
                context,
                f"probe {spec.name}",
                ok=verdict.outcome == "ok",
                attributes={
                    "triton.model_name": spec.name,
                    "triton.model_version": spec.version,
                    "triton.request_id": request_id,
                    "tritonwatch.probe": self._settings.label,
                    "tritonwatch.protocol": target.protocol,
                    "tritonwatch.outcome": verdict.outcome,
                },
            )
        return verdict

    def _ask(
        self,
        target: Target,
        spec: ModelSpec,
        override: ModelOverride,
        request_id: str,
        headers: dict[str, str],
    ) -> Verdict:
        inventory = self._access.board.current
        try:
            request = self._request(spec, override, request_id, headers)
            with self._access.own.request(
                touched_by(spec, inventory, request), backend=spec.backend
            ):
                reply = self._send(spec, target.protocol)(
                    request,
                    timeout_seconds=self._settings.timeout_seconds
                    + self._settings.linger_seconds,
                )
        except errors.TritonError as error:
            return self._failed(error, request_id)
        return self._judge(spec, override, reply, request_id)

    def _request(
        self,
        spec: ModelSpec,
        override: ModelOverride,
        request_id: str,
        headers: dict[str, str],
    ) -> InferRequest:
        with self._rng_lock:
            payload = make_payload(spec, override.inputs, self._rng)
        parameters = dict(override.parameters)
        if spec.sequence:
            # A sequence of one, under an id nobody else has.
            parameters |= {
                "sequence_id": request_id,
                "sequence_start": True,
                "sequence_end": True,
            }
        return InferRequest(
            spec.name,
            spec.version,
            request_id,
            payload.inputs,
            payload.datatypes,
            parameters,
            headers,
        )

    def _send(self, spec: ModelSpec, protocol: Transport) -> Callable[..., InferReply]:
        if protocol == "http" and self._access.http is not None:
            return self._access.http.infer
        return (
            self._access.grpc.infer_stream
            if spec.decoupled
            else self._access.grpc.infer
        )

    def _failed(self, error: errors.TritonError, request_id: str) -> Verdict:
        outcome: Outcome = next(
            outcome for kind, outcome in _OUTCOMES.items() if isinstance(error, kind)
        )
        waited = self._settings.timeout_seconds if outcome == "timeout" else None
        return Verdict(outcome, waited, request_id, str(error))

    def _judge(
        self,
        spec: ModelSpec,
        override: ModelOverride,
        reply: InferReply,
        request_id: str,
    ) -> Verdict:
        seconds = reply.duration_seconds
        if seconds > self._settings.timeout_seconds:
            return Verdict(
                "timeout",
                seconds,
                request_id,
                f"the answer took {seconds:.3f} s; allowed are "
                f"{self._settings.timeout_seconds:g} s",
            )
        checks = self._settings.checks if override.checks is None else override.checks
        if spec.decoupled and reply.responses == 0:
            # No response at all is a decoupled model's right.
            return Verdict("ok", seconds, request_id)
        fault = output_fault(spec, reply.outputs, checks)
        if fault:
            return Verdict("bad_output", seconds, request_id, fault[:_SHOWN_CHARACTERS])
        return Verdict("ok", seconds, request_id)


def touched_by(
    spec: ModelSpec, inventory: Inventory, request: InferRequest
) -> list[Touched]:
    """The model versions whose statistics one request to `spec` raises."""
    batch_size = next((a.shape[0] for a in request.inputs.values() if a.ndim), 1)
    return _touched((spec.name, spec.version), spec, inventory, batch_size, _MOST_STEPS)


_SHOWN_CHARACTERS = 1_000
"""Of what is wrong with an output, which may hold what the server made up."""
_MOST_STEPS = 8
"""Ensembles of ensembles are followed this deep; Triton refuses a cycle."""
_MOST_TOUCHED = 256
"""No ensemble has as many steps; one that names itself ten times has 10^8."""


def _touched(
    key: ModelKey,
    spec: ModelSpec | None,
    inventory: Inventory,
    batch_size: int,
    levels: int,
) -> list[Touched]:
    batches = spec is not None and spec.max_batch_size > 0
    touched = [(key, batch_size if batches else 1)]
    for model, version in spec.steps if spec and levels else ():
        if len(touched) >= _MOST_TOUCHED:
            break
        resolved = version or latest_version(inventory, model)
        if resolved is not None:
            step = (model, resolved)
            touched += _touched(
                step, inventory.models.get(step), inventory, batch_size, levels - 1
            )
    return touched
