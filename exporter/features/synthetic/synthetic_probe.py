"""Tensors made from a model's metadata, really sent through it."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import structlog

from exporter import errors
from exporter.access.probe_base import (
    Target,
    Transport,
    Verdict,
    outcome_of,
)
from exporter.features.synthetic.synthetic_settings import ModelOverride
from exporter.features.synthetic.synthetic_verdicts import (
    REPEATED,
    Backlog,
    Pace,
    RequestFlights,
    TriedInputs,
    behind,
    pace_verdict,
)
from exporter.own_requests import execution_evidence
from exporter.own_requests.answer_checks import reply_fault
from exporter.own_requests.execution_evidence import Reading, Watched
from exporter.own_requests.own_request import own_request
from exporter.own_requests.payload import InputSettings, make_payload
from exporter.own_requests.reach import own_inference
from exporter.own_requests.sending import changed_signature, send, speaks_http
from exporter.triton.http_path import is_literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from exporter.access.collector_base import Access
    from exporter.access.inventory import Inventory, ModelKey
    from exporter.catalogue.probe_outcomes import Outcome
    from exporter.features.synthetic.synthetic_settings import SyntheticSettings
    from exporter.triton.protocol_types import InferReply, InferRequest, ModelSpec

log = structlog.get_logger()

_DOUBTFUL: frozenset[Outcome] = frozenset(
    {"invalid", "configuration", "model_error", "bad_output"}
)
"""Outcomes that an outdated signature may cause."""


@dataclass(frozen=True, slots=True)
class _Planned:
    """A request to be sent."""

    target: Target
    spec: ModelSpec
    override: ModelOverride
    inputs: dict[str, InputSettings]
    request_id: str
    headers: dict[str, str]
    watched: Watched
    """The models that have to be executed for it."""
    is_wider: bool
    """True if its inputs are larger, since a response cache answered before."""


class SyntheticProbe:
    """Sends requests to one model by one protocol at a time."""

    def __init__(self, settings: SyntheticSettings, access: Access) -> None:
        self._settings = settings
        self._access = access
        self._rng = np.random.default_rng(settings.seed)
        self._rng_lock = threading.Lock()
        self._only_grpc: set[str] = set()
        self._backlogs: dict[ModelKey, Backlog] = {}
        self._loaded_at: Mapping[ModelKey, float] = {}
        self._was_late = False
        self._tried = TriedInputs(access.clock)
        self._flights = RequestFlights(access.clock)

    def targets(self, inventory: Inventory) -> Sequence[Target]:
        """Every ready model that is not left out, by every protocol it speaks."""
        # A server that was gone has none of the requests that were given up, nor has a
        # model that was loaded again.
        kept = inventory.models if inventory.up or inventory.is_late else {}
        before, self._loaded_at = self._loaded_at, inventory.loaded_at
        self._backlogs = {
            key: backlog
            for key, backlog in list(self._backlogs.items())
            if key in kept and before.get(key) == inventory.loaded_at.get(key)
        }
        if inventory.up and self._was_late:
            for backlog in self._backlogs.values():
                backlog.hurry()
        self._was_late = inventory.is_late
        self._flights.keep(inventory.models)
        self._tried.keep(inventory.models)
        main = self._access.server.protocol
        protocols: list[Transport] = [
            p
            for p in self._settings.protocols
            if p == main or self._access.http is not None
        ]
        return [
            Target(key, protocol)
            for key, spec in inventory.models.items()
            if self._settings.models.matches(spec.name)
            for protocol in protocols
            if protocol == main
            or (
                not (spec.decoupled and main in protocols)
                and self._speaks_http(spec, inventory)
            )
        ]

    def _speaks_http(self, spec: ModelSpec, inventory: Inventory) -> bool:
        """Return whether HTTP can reach a model; log once where its name prevents it."""
        override = self._settings.overrides.get(spec.name, ModelOverride())
        if not speaks_http(spec, override.inputs):
            return False
        # Triton does not decode escapes in a path; other KServe servers do.
        is_triton = inventory.info is None or inventory.info.is_triton
        if not is_triton or is_literal(spec.name):
            return True
        if spec.name not in self._only_grpc:
            self._only_grpc.add(spec.name)
            log.warning(
                "model_not_probed_over_http",
                model=spec.name,
                reason="Triton does not decode escapes in a path, so this model "
                "cannot be requested over HTTP; it is probed over gRPC only",
            )
        return False

    def attempt(self, target: Target) -> Verdict:
        """Send one request and check its answer."""
        spec = self._access.board.current.models.get(target.key)
        if spec is None:
            return Verdict(
                "invalid", detail="the model is not in the inventory any more"
            )
        self._flights.forget(target)
        context = self._access.spans.begin()
        headers = {"traceparent": context.traceparent} if context else {}
        planned = self._plan(target, spec, headers)
        verdict = self._attempt(planned)
        if verdict.outcome in _DOUBTFUL:
            fresh = changed_signature(
                self._access, spec, timeout_seconds=self._settings.timeout_seconds
            )
            if fresh is not None:
                planned = self._plan(target, fresh, headers)
                verdict = self._attempt(planned)
        if context:
            self._access.spans.end(
                context,
                f"probe {spec.name}",
                ok=verdict.outcome == "ok",
                attributes={
                    "triton.model_name": spec.name,
                    "triton.model_version": spec.version,
                    "triton.request_id": planned.request_id,
                    "tritonwatch.probe": self._settings.label,
                    "tritonwatch.protocol": target.protocol,
                    "tritonwatch.outcome": verdict.outcome,
                },
            )
        return verdict

    def judges_late(self, target: Target) -> bool:
        """Return whether a late answer may be a backlog, as of a sequence model."""
        spec = self._access.board.current.models.get(target.key)
        backlog = self._backlogs.get(target.key)
        return bool((spec and spec.sequence) or (backlog and backlog.waits))

    def note_verdict(self, target: Target, verdict: Verdict) -> None:
        """Send less often after a timeout."""
        if backlog := self._backlogs.get(target.key):
            backlog.note(verdict, self._access.clock())

    def waited_seconds(self, target: Target) -> float:
        """Return the time in the latest request of the latest attempt; 0 before one."""
        return self._flights.waited_seconds(target)

    def _plan(
        self, target: Target, spec: ModelSpec, headers: dict[str, str]
    ) -> _Planned:
        override = self._settings.overrides.get(spec.name, ModelOverride())
        larger = self._tried.inputs(spec, override.inputs)
        return _Planned(
            target,
            spec,
            override,
            override.inputs if larger is None else larger,
            self._access.own.new_request_id(self._settings.kind),
            headers,
            Watched.of(spec, self._access.board.current),
            is_wider=larger is not None,
        )

    def _attempt(self, planned: _Planned) -> Verdict:
        watched, key = planned.watched, planned.spec.key
        before = self._read(watched)
        backlog = self._backlogs.setdefault(key, Backlog(self._window_seconds()))
        if before is not None:
            backlog.add(before, watched, self._access.clock())
        backlog.add_work(key, self._access.work.current)
        if backlog.skips():
            return self._waiting(planned, backlog, REPEATED)
        verdict = self._sent(planned, before)
        if verdict.is_rejected and backlog.is_crowded(self._access.clock()):
            return behind(planned.spec, verdict)
        if verdict.outcome != "timeout":
            return verdict
        if watched.sequences and (reading := self._read(watched)) is not None:
            backlog.add(reading, watched, self._access.clock())
        return self._waiting(planned, backlog, verdict)

    def _waiting(
        self, planned: _Planned, backlog: Backlog, timeout: Verdict
    ) -> Verdict:
        """The verdict on a model without an answer: does it work for other clients?"""
        watched, now = planned.watched, self._access.clock()
        if watched.sequences:
            works = backlog.moves(watched, now)
        else:
            works = backlog.serves_others(now)
        return behind(planned.spec, timeout) if works else timeout

    def _read(self, watched: Watched) -> Reading | None:
        """The statistics of the watched models; None where none are needed or known."""
        if not watched.keys:
            return None
        with contextlib.suppress(errors.TritonError):
            return execution_evidence.read(
                self._access.grpc, watched, self._read_seconds()
            )
        return None

    def _unproven(self, watched: Watched, before: Reading | None) -> str:
        """Return why an answer does not prove that the model behind a cache ran; "" if it does."""
        detail = "Triton's statistics cannot be read"
        try:
            if before is not None:
                if execution_evidence.all_executed(
                    self._access.grpc, watched, before, self._read_seconds()
                ):
                    return ""
                detail = "a response cache answered"
        except errors.TritonError as error:
            detail = f"{detail}: {error}"
        models = ", ".join(sorted(name for name, _ in watched.behind_cache))
        return (
            f"unproven: {detail}, so this answer does not show that {models} "
            "runs; give the probe more input values with `overrides`"
        )

    def _read_seconds(self) -> float:
        return min(self._settings.timeout_seconds, _READ_SECONDS)

    def _window_seconds(self) -> float:
        """Return the age up to which an execution shows that a sequence model runs."""
        settings = self._settings
        attempt = settings.timeout_seconds + settings.linger_seconds
        return max(3 * settings.interval_seconds, 2 * attempt)

    def _sent(self, planned: _Planned, before: Reading | None) -> Verdict:
        """Send the request; return the verdict on its answer."""
        verdict = self._answered(planned, before)
        work = self._access.work.current
        known = work.models.get(planned.spec.key) if work else None
        production = None if known is None or known.is_doubtful else known.inferences
        return self._tried.judged(
            planned.spec, verdict, production, is_wider=planned.is_wider
        )

    def _answered(self, planned: _Planned, before: Reading | None) -> Verdict:
        spec, request_id = planned.spec, planned.request_id
        unproven = ""
        try:
            request = self._request(planned)
            with own_inference(self._access, spec, request) as sent:
                with self._flights.under_way(planned.target):
                    reply = send(
                        self._access,
                        spec,
                        planned.target.protocol,
                        request,
                        timeout_seconds=self._settings.timeout_seconds
                        + self._settings.linger_seconds,
                    )
                sent.reply = reply
                if planned.watched.cached:
                    unproven = self._unproven(planned.watched, before)
                    sent.from_cache = bool(unproven)
        except errors.TritonError as error:
            outcome = outcome_of(error)
            waited = self._settings.timeout_seconds if outcome == "timeout" else None
            return Verdict(
                outcome,
                waited,
                request_id,
                str(error),
                is_rejected=isinstance(error, errors.RejectedError),
            )
        verdict = replace(
            self._judge(planned, reply),
            first_response_seconds=reply.first_response_seconds,
            gap_seconds=reply.gap_seconds,
        )
        if verdict.outcome == "ok" and unproven:
            return Verdict("cached", request_id=request_id, detail=unproven)
        return verdict

    def _request(self, planned: _Planned) -> InferRequest:
        with self._rng_lock:
            (rng,) = self._rng.spawn(1)
        # It may read files, which may take long.
        payload = make_payload(planned.spec, planned.inputs, rng)
        return own_request(
            planned.spec,
            planned.request_id,
            payload.inputs,
            parameters=planned.override.parameters,
            headers=planned.headers,
        )

    def _judge(self, planned: _Planned, reply: InferReply) -> Verdict:
        spec, request_id, override = planned.spec, planned.request_id, planned.override
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
        pace = self._pace(override)
        if spec.decoupled and reply.responses == 0:
            # A decoupled model may answer without any response, if none is expected.
            fault = None if pace.first_seconds is None else "no response came"
        else:
            fault = reply_fault(spec, reply, checks)
        if fault:
            return Verdict("bad_output", seconds, request_id, fault[:_SHOWN_CHARACTERS])
        return pace_verdict(pace, reply, request_id)

    def _pace(self, override: ModelOverride) -> Pace:
        first, gap = override.max_first_response_seconds, override.max_gap_seconds
        return Pace(
            self._settings.max_first_response_seconds if first is None else first,
            self._settings.max_gap_seconds if gap is None else gap,
        )


_READ_SECONDS = 1.0
_SHOWN_CHARACTERS = 1_000
"""Limit of an error's text, which may contain values from the server."""
