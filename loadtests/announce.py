"""A run tells others that it goes on: the sidecar, Grafana, an OpenTelemetry collector.

Whoever does not listen costs the run nothing but a sentence at its end.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import threading
import time
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

import urllib3

from loadtests.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence
    from pathlib import Path

    from loadtests.profiles.base import Phase
    from loadtests.result import RunResult
    from loadtests.scenario import Scenario

TTL_SECONDS: Final = 15.0
_EVERY_SECONDS: Final = 4.0
_TIMEOUT_SECONDS: Final = 3.0
_OK: Final = range(200, 300)
_SHOWN: Final = 200


class AnnouncedRun:
    """A run as others shall know it; ends with its block."""

    def __init__(self, kind: str, name: str, profile: str) -> None:
        self.kind = kind
        self.name = f"{name}-{secrets.token_hex(3)}"
        self.profile = profile
        self.started_at = time.time()
        self.ended_at: float | None = None
        self.result: RunResult | None = None
        self.problems: list[str] = []
        """Who could not be told, and why."""

    def ended(self, result: RunResult | None = None) -> None:
        """It is over, with this result."""
        self.ended_at = time.time()
        self.result = result

    def note(self, problem: str) -> None:
        """Keep a problem, once."""
        if problem not in self.problems:
            self.problems.append(problem)


class Announcer(Protocol):
    """One who is told."""

    def goes_on(self, run: AnnouncedRun, phase: str) -> None:
        """The run is in this phase; said again every few seconds."""
        ...

    def is_over(self, run: AnnouncedRun) -> None:
        """The run has ended."""
        ...


class SidecarAnnouncer:
    """POSTs to the tap of a sidecar, whose `runs` collector shows it as triton_run_info."""

    def __init__(self, url: str) -> None:
        self._url = _checked(url, "--sidecar").rstrip("/")

    def goes_on(self, run: AnnouncedRun, phase: str) -> None:
        """Say so."""
        self._post(run, phase, ended=False)

    def is_over(self, run: AnnouncedRun) -> None:
        """Say so."""
        self._post(run, "ended", ended=True)

    def _post(self, run: AnnouncedRun, phase: str, *, ended: bool) -> None:
        notice = {
            "run": run.name,
            "kind": run.kind,
            "profile": run.profile,
            "phase": phase,
            "ttl_seconds": TTL_SECONDS,
            "ended": ended,
        }
        post_json(f"{self._url}/v1/runs", notice, {}, run, "the sidecar")


class GrafanaAnnouncer:
    """Makes a region annotation of the run, when it is over."""

    def __init__(self, url: str, token: str | None) -> None:
        self._url = _checked(url, "--grafana").rstrip("/")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    def goes_on(self, run: AnnouncedRun, phase: str) -> None:
        """Nothing to say yet."""

    def is_over(self, run: AnnouncedRun) -> None:
        """From its start to its end."""
        ended_at = run.ended_at or time.time()
        annotation = {
            "time": int(run.started_at * 1000),
            "timeEnd": int(ended_at * 1000),
            "tags": ["tritonwatch", run.kind, run.profile],
            "text": _told(run),
        }
        url = f"{self._url}/api/annotations"
        post_json(url, annotation, self._headers, run, "Grafana")


class OtlpAnnouncer:
    """Sends one span of the run, when it is over, over OTLP/HTTP."""

    def __init__(self, url: str) -> None:
        self._url = _checked(url, "--otlp")

    def goes_on(self, run: AnnouncedRun, phase: str) -> None:
        """Nothing to say yet."""

    def is_over(self, run: AnnouncedRun) -> None:
        """From its start to its end."""
        from exporter.otlp import OtlpExporter  # noqa: PLC0415 - heavy, after the run
        from exporter.push import OtlpSettings  # noqa: PLC0415
        from exporter.spans import Span, SpanContext  # noqa: PLC0415

        started_ns = int(run.started_at * 1e9)
        ended_ns = int((run.ended_at or time.time()) * 1e9)
        context = SpanContext(
            secrets.randbits(128) or 1, secrets.randbits(64) or 1, started_ns
        )
        valid = run.result is not None and run.result.verdict.valid
        span = Span(
            context,
            f"tritonwatch {run.kind}",
            ended_ns,
            ok=valid,
            attributes=_attributes(run),
        )
        settings = OtlpSettings(
            endpoint=self._url, traces=True, timeout_seconds=_TIMEOUT_SECONDS
        )
        sender = OtlpExporter(settings, run.name, start_ns=started_ns)
        try:
            if not sender.send_spans([span]):
                run.note(f"the collector at {self._url} did not take the run's span")
        finally:
            sender.close()


def announcers_of(
    *,
    sidecar: str | None = None,
    grafana: str | None = None,
    grafana_token_file: Path | None = None,
    otlp: str | None = None,
) -> tuple[Announcer, ...]:
    """Those that were named.

    Raises:
        PlanError: an address is none, or the file with the token cannot be read.
    """
    found: list[Announcer] = []
    if sidecar is not None:
        found.append(SidecarAnnouncer(sidecar))
    if grafana is not None:
        found.append(GrafanaAnnouncer(grafana, _token(grafana_token_file)))
    if otlp is not None:
        found.append(OtlpAnnouncer(otlp))
    return tuple(found)


@contextlib.contextmanager
def announced(
    scenario: Scenario, announcers: Sequence[Announcer]
) -> Generator[AnnouncedRun]:
    """Tell of a load run while the block lasts, and that it is over."""
    run = AnnouncedRun("load", scenario.name, scenario.profile.kind)
    with telling(run, announcers, scenario.profile.phases()):
        yield run


@contextlib.contextmanager
def telling(
    run: AnnouncedRun, announcers: Sequence[Announcer], phases: Sequence[Phase]
) -> Generator[None]:
    """The same for a run of any kind. `phases` are in seconds from now."""
    if not announcers:
        yield
        return
    over = threading.Event()
    thread = threading.Thread(
        target=_tell, args=(run, announcers, phases, over), daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(len(announcers) * _TIMEOUT_SECONDS + 1.0)
        if run.ended_at is None:
            run.ended()
        for announcer in announcers:
            announcer.is_over(run)


def _tell(
    run: AnnouncedRun,
    announcers: Sequence[Announcer],
    phases: Sequence[Phase],
    over: threading.Event,
) -> None:
    began = time.monotonic()
    while not over.is_set():
        elapsed = time.monotonic() - began
        phase = next(
            (p.name for p in reversed(phases) if p.start_seconds <= elapsed), "start"
        )
        for announcer in announcers:
            announcer.goes_on(run, phase)
        changes = [p.start_seconds for p in phases if p.start_seconds > elapsed]
        next_change = min(changes, default=elapsed + _EVERY_SECONDS) - elapsed
        over.wait(min(max(next_change, 0.1), _EVERY_SECONDS))


def post_json(
    url: str,
    document: Mapping[str, Any],
    headers: Mapping[str, str],
    run: AnnouncedRun,
    who: str,
) -> None:
    """POST it; what goes wrong becomes a problem of the run."""
    try:
        with urllib3.PoolManager() as pool:
            answer = pool.request(
                "POST",
                url,
                body=json.dumps(document).encode(),
                headers={"Content-Type": "application/json", **headers},
                timeout=_TIMEOUT_SECONDS,
                retries=False,
                redirect=False,
            )
    except urllib3.exceptions.HTTPError as error:
        run.note(f"{who} at {url} was not told of the run: {error}")
        return
    if answer.status not in _OK:
        text = answer.data[:_SHOWN].decode("utf-8", "replace").strip()
        run.note(f"{who} at {url} did not take it: HTTP {answer.status}: {text}")


def _told(run: AnnouncedRun) -> str:
    if run.result is None:
        return f"{run.kind} {run.name} ({run.profile}): ended without a result"
    return (
        f"{run.kind} {run.name} ({run.profile}): "
        f"{run.result.throughput:.4g} right answers/s, {run.result.verdict}"
    )


def _attributes(run: AnnouncedRun) -> dict[str, str | float]:
    attributes: dict[str, str | float] = {
        "tritonwatch.run": run.name,
        "tritonwatch.run.kind": run.kind,
        "tritonwatch.run.profile": run.profile,
    }
    if run.result is not None:
        attributes["tritonwatch.run.verdict"] = str(run.result.verdict)
        attributes["tritonwatch.run.requests"] = float(len(run.result.requests))
        attributes["tritonwatch.run.requests_per_second"] = run.result.throughput
    return attributes


def _token(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        return file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(f"cannot be read: {error}", str(file)) from None


def _checked(url: str, option: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise PlanError(f"found {url!r}; want a URL like http://localhost:8004", option)
    return url
