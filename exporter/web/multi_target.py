"""/probe?target=&module=: one probe of another server, as in blackbox_exporter.

target  host:port of a Triton's gRPC service; must match `multi_target.allow`
http    host:port of its HTTP service, to be probed by HTTP too (optional)
module  name of one of the configured probes (the first one if left out)
debug   true: the probe's log, its samples and the module's settings as text
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import structlog

from exporter import catalogue
from exporter.access.collector_base import Access
from exporter.access.probe_base import Verdict
from exporter.catalogue.probe_outcomes import MEANINGS
from exporter.config import connect
from exporter.config.configuration import TargetSettings
from exporter.errors import DeniedError, PartialResultError, TritonwatchError
from exporter.features.discovery.server_collector import ServerSettings
from exporter.network import addresses
from exporter.network.addresses import is_address
from exporter.network.admission import network_of
from exporter.output import exposition
from exporter.samples import Sample
from exporter.system.workers import Workers
from exporter.triton.protocol_types import ModelSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from exporter.access.inventory import ModelKey
    from exporter.access.own_traffic import OwnTraffic
    from exporter.access.probe_base import Target, Transport
    from exporter.config.configuration import Config
    from exporter.config.kinds import AnyProbe
    from exporter.samples import AnySample
    from exporter.triton.grpc import GrpcClient

    _GivenUp = dict[tuple[str, ModelKey, Transport], tuple[GrpcClient, float]]
    """Clients whose request had no answer, and when it was given up, by the server's
    address, model and protocol. Triton executes it; one more of each scrape would be a
    queue. Only over gRPC the answer is awaited."""

log = structlog.get_logger()

DEFAULT_TIMEOUT_SECONDS: Final = 10.0
MAX_TIMEOUT_SECONDS: Final = 120.0
TIMEOUT_OFFSET_SECONDS: Final = 0.5
"""Taken off the scrape's own timeout, so that the answer still arrives."""


_FREE_VALUES: Final = frozenset({"parameters", "values"})
"""Settings whose text goes to the server as it is: keys of APIs, say."""

_WAIT_SECONDS: Final = 60.0
"""Longest time for which a model is not asked: its answer may have got lost."""
_UNANSWERED: Final = Verdict(
    "timeout", detail="an earlier request to it has no answer yet", is_repeated=True
)

_BRACKET_OF_IPV6: Final = re.compile(r"\[(?=[^]]*:)")


class ProbeRefusedError(TritonwatchError):
    """The request for a probe is not one we carry out."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        self.status = status
        super().__init__(message)


@dataclass(slots=True)
class ProbeResult:
    """Samples of one probe, and its log for people."""

    samples: list[AnySample] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    settings: str = ""

    def debug_text(self) -> str:
        """Log, samples and settings."""
        body, _ = exposition.render(self.samples)
        parts = (
            "Logs for the probe:",
            *self.log,
            "",
            "Metrics that would have been returned:",
            body.decode(),
            "Module configuration:",
            self.settings,
        )
        return "\n".join(parts)


class MultiTarget:
    """Carries out /probe requests, a bounded number at a time, shared by addresses."""

    def __init__(self) -> None:
        self._running: Counter[str] = Counter()
        """Requests that are being answered, by address."""
        self._given_up: _GivenUp = {}

    async def probe(
        self,
        config: Config,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        peer: str,
        watched: OwnTraffic,
    ) -> ProbeResult:
        """Probe `query["target"]` once, for the client at `peer`.

        `watched` is the ledger of the server this process watches: where that is what
        is looked at, our requests must not count as its production.

        Raises:
            ProbeRefusedError: target or module is missing, unknown or not allowed, or
                too many probes are running.
        """
        target = TargetSettings(
            grpc=_allowed(config, query, "target"),
            http=_allowed(config, query, "http") if "http" in query else None,
            metrics=None,
        )
        module = _module(config, query)
        deadline = time.monotonic() + _timeout_seconds(headers)
        address = network_of(peer)
        self._enter(address, config.multi_target.max_concurrent)
        for place, (client, since) in list(self._given_up.items()):
            _, (model, _), protocol = place
            is_answered = protocol == "grpc" and not client.is_waiting(model)
            if is_answered or time.monotonic() - since > _WAIT_SECONDS:
                del self._given_up[place]
        workers = Workers(1, "multi-target")
        try:
            return await workers.submit(
                _probe_target, config, target, module, deadline, watched, self._given_up
            )
        finally:
            self._running[address] -= 1
            self._running += Counter()  # drops what is zero
            workers.close()

    def _enter(self, address: str, most: int) -> None:
        """Count one more request, unless the address would have more than it leaves free.

        A client with slow targets then keeps no other out (as in admission.Held).
        """
        own = self._running[address]
        free = 2 * most - self._running.total() - 1
        if free < 0 or (own and own + 1 > free):
            raise ProbeRefusedError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"{self._running.total()} probes are running, {own} of this address; "
                f"the maximum of multi_target.max_concurrent is {most} of one address",
            )
        self._running[address] += 1


def _allowed(config: Config, query: Mapping[str, str], key: str) -> str:
    address = query.get(key, "")
    if not is_address(address):
        raise ProbeRefusedError(
            HTTPStatus.BAD_REQUEST,
            f'found {key}={address!r}; want "host:port", like triton-0:8001',
        )
    settings = config.multi_target
    # To fnmatch the brackets of an IPv6 address are a choice of characters: "[::1]:*"
    # would let 1:80 in.
    allowed = (_BRACKET_OF_IPV6.sub("[[]", pattern) for pattern in settings.allow)
    if settings.open or any(fnmatchcase(address, pattern) for pattern in allowed):
        return address
    raise ProbeRefusedError(
        HTTPStatus.FORBIDDEN,
        f"found {key}={address!r}, which multi_target.allow does not allow",
    )


def _module(config: Config, query: Mapping[str, str]) -> AnyProbe:
    modules = {probe.label: probe for probe in config.all_probes()}
    name = query.get("module") or next(iter(modules), "")
    try:
        return modules[name]
    except KeyError:
        raise ProbeRefusedError(
            HTTPStatus.BAD_REQUEST,
            f"found module={name!r}; configured probes are "
            f"{', '.join(sorted(modules)) or 'none'}",
        ) from None


def _without_text(value: Any, *, below: bool = False) -> Any:
    """Return settings without values from environment variables."""
    if isinstance(value, dict):
        return {
            key: _without_text(item, below=below or key in _FREE_VALUES)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_without_text(item, below=below) for item in value]
    return "**********" if below and isinstance(value, str) else value


def _timeout_seconds(headers: Mapping[str, str]) -> float:
    try:
        timeout = float(headers["x-prometheus-scrape-timeout-seconds"])
    except (KeyError, ValueError):
        return DEFAULT_TIMEOUT_SECONDS
    if not 0 < timeout < float("inf"):
        return DEFAULT_TIMEOUT_SECONDS
    offset = min(TIMEOUT_OFFSET_SECONDS, timeout / 2)
    return min(timeout - offset, MAX_TIMEOUT_SECONDS)


def _probe_target(
    config: Config,
    target: TargetSettings,
    module: AnyProbe,
    deadline: float,
    watched: OwnTraffic,
    given_up: _GivenUp,
) -> ProbeResult:
    started = time.monotonic()
    # In this thread: a resolver may take its time.
    same = _is_watched(config, target)
    settings = _without_text(module.model_dump(mode="json"))
    result = ProbeResult(settings=json.dumps(settings, indent=2))
    access = Access.detached(
        connect.grpc_client(target),
        http=connect.http_client(target),
        models=config.models,
        own=watched if same else None,
    )
    try:
        remaining = max(0.05, deadline - started)
        server = ServerSettings(
            timeout_seconds=min(1.0, remaining / 4), deadline_seconds=remaining
        ).build(access)
        complete = True
        try:
            result.samples += server.collect()
        except DeniedError as error:
            complete = False
            result.log.append(f"server {target.grpc}: {error}")
        except PartialResultError as error:
            complete = False
            result.samples += error.samples
            result.log.append(f"server {target.grpc}: {error}")
        inventory = access.board.current
        result.log.append(
            f"server {target.grpc}: {'up' if inventory.up else 'no answer'}, "
            f"{len(inventory.models)} ready models"
        )
        judged, unjudged, all_well = _judge_models(
            access, module, deadline, result, given_up
        )
        success = (
            complete and inventory.up and bool(judged) and not unjudged and all_well
        )
    finally:
        access.close()
    result.samples += [
        Sample(catalogue.BLACKBOX_SUCCESS, success),
        Sample(catalogue.BLACKBOX_JUDGED, len(judged)),
        Sample(catalogue.BLACKBOX_UNJUDGED, len(unjudged)),
        Sample(catalogue.BLACKBOX_DURATION, time.monotonic() - started),
    ]
    return result


def _is_watched(config: Config, target: TargetSettings) -> bool:
    """Return whether it is the server that this process watches, as far as known."""
    watched = config.target
    if not isinstance(watched, TargetSettings):
        return False
    return addresses.same_server(watched.grpc, target.grpc) or (
        target.http is not None
        and watched.http is not None
        and addresses.same_server(watched.http, target.http)
    )


def _judge_models(
    access: Access,
    module: AnyProbe,
    deadline: float,
    result: ProbeResult,
    given_up: _GivenUp,
) -> tuple[set[ModelKey], set[ModelKey], bool]:
    """Probe every target in turn while time is left.

    Returns the model versions that were asked by every protocol, those that were not or
    whose answers show nothing, and whether all others serve.
    """
    keys: set[ModelKey] = set()
    unjudged: set[ModelKey] = set()
    shown: set[ModelKey] = set()
    all_well = True
    known = access.board.current.models
    for target in _targets(access, module):
        keys.add(target.key)
        place = access.grpc.address, target.key
        remaining = deadline - time.monotonic()
        if target.key not in known:
            verdict, reason = None, "its metadata could not be read in time"
        elif remaining <= 0:
            verdict, reason = None, "the scrape's own timeout left no time for it"
        elif (*place, "grpc") in given_up or (*place, target.protocol) in given_up:
            is_same = (*place, target.protocol) in given_up
            verdict, reason = _UNANSWERED if is_same else None, _UNANSWERED.detail
        else:
            patience = min(module.timeout_seconds, remaining)
            hurried = module.model_copy(
                update={"timeout_seconds": patience, "linger_seconds": 0.0}
            )
            probe = hurried.build(access)
            verdict = probe.attempt(target)
            if verdict is not None and verdict.outcome == "cached":
                # With larger inputs, where the model takes them.
                verdict = probe.attempt(target)
            is_late = (
                target.protocol == "http"
                and verdict is not None
                and verdict.outcome == "timeout"
            )
            if is_late or access.grpc.is_waiting(target.key[0]):
                given_up[*place, target.protocol] = access.grpc, time.monotonic()
            elif target.protocol == "grpc":
                # It answers, so what it got over HTTP is no longer in its queue.
                given_up.pop((*place, "http"), None)
            reason = "the probe had nothing to ask"
        if verdict is None:
            unjudged.add(target.key)
            result.log.append(f"{_shown(target)}: not probed: {reason}")
            continue
        serves = MEANINGS[verdict.outcome].serves
        if serves is not None:
            shown.add(target.key)
            all_well = all_well and serves
        _report(target, verdict, module.label, result)
    unjudged |= keys - shown
    return keys - unjudged, unjudged, all_well


def _targets(access: Access, module: AnyProbe) -> Sequence[Target]:
    """Return the targets among the listed models, unread ones included."""
    inventory = access.board.current
    listed = {(e.name, e.version) for e in inventory.index if e.ready}
    unread = {
        key: ModelSpec(*key, (), ()) for key in sorted(listed - inventory.models.keys())
    }
    everything = replace(inventory, models={**inventory.models, **unread})
    return module.build(access).targets(everything)


def _report(target: Target, verdict: Verdict, label: str, result: ProbeResult) -> None:
    labels = (*target.key, target.protocol, label)
    seconds = verdict.duration_seconds
    succeeded = MEANINGS[verdict.outcome].succeeded
    if succeeded is not None:
        result.samples.append(Sample(catalogue.PROBE_SUCCESS, succeeded, labels))
    if seconds is not None:
        result.samples.append(Sample(catalogue.PROBE_LAST_DURATION, seconds, labels))
    result.log.append(
        f"{_shown(target)}: {verdict.outcome}"
        + (f" in {seconds:.6f} s" if seconds else "")
        + (f": {verdict.detail}" if verdict.detail else "")
    )


def _shown(target: Target) -> str:
    model, version = target.key
    return f"model {model} version {version} over {target.protocol}"
