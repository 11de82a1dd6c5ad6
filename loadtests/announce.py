"""Announces a run to the sidecar, Grafana and an OpenTelemetry collector.

A receiver that is down costs the run a sentence at its end, and nothing else.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import secrets
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

import urllib3

from loadtests.errors import PlanError
from loadtests.profiles.profile import Phase

if TYPE_CHECKING:
    import argparse
    from collections.abc import Generator, Mapping, Sequence
    from pathlib import Path

    from loadtests.result import RunResult
    from loadtests.scenario import Scenario

TTL_SECONDS: Final = 15.0
_EVERY_SECONDS: Final = 4.0
_TIMEOUT_SECONDS: Final = 3.0
_OK: Final = range(200, 300)
_SHOWN: Final = 200
_USER: Final = re.compile(r"//[^/]*@")


@dataclass(frozen=True, slots=True)
class Ending:
    """The result of a run, as it is announced."""

    told: str
    valid: bool
    attributes: Mapping[str, str | float] = field(default_factory=dict)
    """Attributes of its span, beside its name and kind."""

    @classmethod
    def of(cls, result: RunResult) -> Ending:
        """Return the result of a load run."""
        return cls(
            f"{result.throughput:.4g} right answers/s, {result.verdict}",
            result.verdict.valid,
            {
                "tritonwatch.run.verdict": str(result.verdict),
                "tritonwatch.run.requests": float(len(result.requests)),
                "tritonwatch.run.requests_per_second": result.throughput,
            },
        )


class AnnouncedRun:
    """A run as others shall know it; ends with its block."""

    def __init__(self, kind: str, name: str, profile: str) -> None:
        self.kind = kind
        self.name = f"{name}-{secrets.token_hex(3)}"
        self.profile = profile
        self.started_at = time.time()
        self.ended_at: float | None = None
        self.ending: Ending | None = None
        self.problems: list[str] = []
        """Receivers that could not be reached, and the reasons."""
        self.news = threading.Event()
        """Set when another phase begins, and when it is over."""
        self._schedule: tuple[float, Sequence[Phase]] = (time.monotonic(), ())

    def follow(self, phases: Sequence[Phase]) -> None:
        """Set the phases from now on; their times count from now."""
        self._schedule = (time.monotonic(), phases)
        self.news.set()

    def enter(self, phase: str) -> None:
        """Enter a phase now."""
        self.follow((Phase(phase, 0.0, math.inf, None),))

    def phase(self) -> tuple[str, float]:
        """Return the current phase, and the seconds until it changes."""
        began, phases = self._schedule
        elapsed = time.monotonic() - began
        name = next(
            (p.name for p in reversed(phases) if p.start_seconds <= elapsed), "start"
        )
        changes = (p.start_seconds for p in phases if p.start_seconds > elapsed)
        return name, min(changes, default=math.inf) - elapsed

    def ended(self, ending: Ending | None = None) -> None:
        """Announce that the run is over, with its result."""
        self.ended_at = time.time()
        self.ending = ending

    def note(self, problem: str) -> None:
        """Keep a problem, once."""
        if problem not in self.problems:
            self.problems.append(problem)

    def tell_problems(self) -> None:
        """Report the receivers that could not be reached."""
        for problem in self.problems:
            sys.stderr.write(f"tritonwatch: {problem}\n")


class Announcer(Protocol):
    """A receiver of announcements."""

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
        """Announce the phase of an active run."""
        self._post(run, phase, ended=False)

    def is_over(self, run: AnnouncedRun) -> None:
        """Announce the end of a run."""
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
        """Do nothing: only the end is announced."""

    def is_over(self, run: AnnouncedRun) -> None:
        """Create an annotation from the run's start to its end."""
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
        """Do nothing: only the end is announced."""

    def is_over(self, run: AnnouncedRun) -> None:
        """Send a span from the run's start to its end."""
        from exporter.access.span_buffer import Span, SpanContext  # noqa: PLC0415
        from exporter.output.otlp import OtlpExporter  # noqa: PLC0415 - heavy, after the run
        from exporter.output.push import OtlpSettings  # noqa: PLC0415

        started_ns = int(run.started_at * 1e9)
        ended_ns = int((run.ended_at or time.time()) * 1e9)
        context = SpanContext(
            secrets.randbits(128) or 1, secrets.randbits(64) or 1, started_ns
        )
        span = Span(
            context,
            f"tritonwatch {run.kind}",
            ended_ns,
            ok=run.ending is not None and run.ending.valid,
            attributes=_attributes(run),
        )
        settings = OtlpSettings(
            endpoint=self._url, traces=True, timeout_seconds=_TIMEOUT_SECONDS
        )
        sender = OtlpExporter(settings, run.name, start_ns=started_ns)
        try:
            if not sender.send_spans([span]):
                run.note(
                    f"the collector at {_told_of(self._url)} did not take the span"
                )
        finally:
            sender.close()


def announcers_among(options: argparse.Namespace) -> tuple[Announcer, ...]:
    """Return the receivers that the options of `command_options.add_announcers` name.

    Raises:
        PlanError: an address is none, or the file with the token cannot be read.
    """
    found: list[Announcer] = []
    if options.sidecar is not None:
        found.append(SidecarAnnouncer(options.sidecar))
    if options.grafana is not None:
        token = _token(options.grafana_token_file)
        found.append(GrafanaAnnouncer(options.grafana, token))
    if options.otlp is not None:
        found.append(OtlpAnnouncer(options.otlp))
    return tuple(found)


@contextlib.contextmanager
def announced(
    scenario: Scenario, announcers: Sequence[Announcer]
) -> Generator[AnnouncedRun]:
    """Announce a load run while the block lasts, and its end."""
    run = AnnouncedRun("load", scenario.name, scenario.profile.kind)
    with telling(run, announcers, scenario.profile.phases()):
        yield run


@contextlib.contextmanager
def telling(
    run: AnnouncedRun, announcers: Sequence[Announcer], phases: Sequence[Phase] = ()
) -> Generator[None]:
    """The same for a run of any kind. `phases` are in seconds from now.

    One that knows its phases only as it goes on says so with `enter` and `follow`.
    """
    run.follow(phases)
    if not announcers:
        yield
        return
    over = threading.Event()
    thread = threading.Thread(target=_tell, args=(run, announcers, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        run.news.set()
        thread.join(len(announcers) * _TIMEOUT_SECONDS + 1.0)
        if run.ended_at is None:
            run.ended()
        for announcer in announcers:
            announcer.is_over(run)


def _tell(
    run: AnnouncedRun, announcers: Sequence[Announcer], over: threading.Event
) -> None:
    while True:
        run.news.clear()
        if over.is_set():
            return
        phase, left = run.phase()
        for announcer in announcers:
            announcer.goes_on(run, phase)
        run.news.wait(min(max(left, 0.1), _EVERY_SECONDS))


def post_json(
    url: str,
    document: Mapping[str, Any],
    headers: Mapping[str, str],
    run: AnnouncedRun,
    who: str,
) -> None:
    """Send a POST request; an error becomes a problem of the run."""
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
        run.note(f"{who} at {_told_of(url)} was not told of the run: {error}")
        return
    if answer.status not in _OK:
        text = answer.data[:_SHOWN].decode("utf-8", "replace").strip()
        run.note(
            f"{who} at {_told_of(url)} did not take it: HTTP {answer.status}: {text}"
        )


def _told_of(url: str) -> str:
    """Return the URL without parts that may be secret: user, password, query."""
    return _USER.sub("//", url.partition("?")[0])


def _told(run: AnnouncedRun) -> str:
    told = "ended without a result" if run.ending is None else run.ending.told
    return f"{run.kind} {run.name} ({run.profile}): {told}"


def _attributes(run: AnnouncedRun) -> dict[str, str | float]:
    return {
        "tritonwatch.run": run.name,
        "tritonwatch.run.kind": run.kind,
        "tritonwatch.run.profile": run.profile,
        **({} if run.ending is None else run.ending.attributes),
    }


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
        raise PlanError(
            f"found {_told_of(url)!r}; want a URL like http://localhost:8004", option
        )
    return url
