"""Announces a run to the sidecar.

If the sidecar is down, the run reports that at its end and is otherwise not affected.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import re
import secrets
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

import urllib3
from urllib3.util import parse_url

from loadtests.errors import PlanError
from loadtests.profiles.rate_curve import Phase

if TYPE_CHECKING:
    import argparse
    from collections.abc import Generator, Mapping, Sequence

TTL_SECONDS: Final = 15.0
_EVERY_SECONDS: Final = 4.0
_TIMEOUT_SECONDS: Final = 3.0
_OK: Final = range(200, 300)
_SHOWN: Final = 200
_USER: Final = re.compile(r"//[^/]*@")


class AnnouncedRun:
    """The announced name, kind, profile and phase of a run."""

    def __init__(self, kind: str, name: str, profile: str) -> None:
        self.kind = kind
        self.name = f"{name}-{secrets.token_hex(3)}"
        self.profile = profile
        self.problems: list[str] = []
        """Receivers that could not be reached, and the reasons."""
        self.news = threading.Event()
        """Set when another phase begins and when the run ends."""
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

    def note(self, problem: str) -> None:
        """Keep a problem, once."""
        if problem not in self.problems:
            self.problems.append(problem)

    def report_problems(self) -> None:
        """Report the receivers that could not be reached."""
        for problem in self.problems:
            sys.stderr.write(f"tritonwatch: {problem}\n")


class SidecarAnnouncer:
    """POSTs to the tap of a sidecar, whose `runs` collector shows it as triton_run_info."""

    def __init__(self, url: str) -> None:
        self._url = _checked(url, "--sidecar").rstrip("/")

    def announce(self, run: AnnouncedRun, phase: str, *, ended: bool = False) -> None:
        """Announce the phase of an active run, or its end."""
        notice = {
            "run": run.name,
            "kind": run.kind,
            "profile": run.profile,
            "phase": phase,
            "ttl_seconds": TTL_SECONDS,
            "ended": ended,
        }
        post_json(f"{self._url}/v1/runs", notice, run)


def announcers_among(options: argparse.Namespace) -> tuple[SidecarAnnouncer, ...]:
    """Return the sidecar that `--sidecar` of `command_options.add_announcers` names.

    Raises:
        PlanError: the address is invalid.
    """
    return () if options.sidecar is None else (SidecarAnnouncer(options.sidecar),)


@contextlib.contextmanager
def announcing(
    run: AnnouncedRun,
    announcers: Sequence[SidecarAnnouncer],
    phases: Sequence[Phase] = (),
) -> Generator[None]:
    """Announce a run while the block lasts, and its end.

    `phases` are in seconds from now; a run that learns them later calls `enter` or
    `follow`.
    """
    run.follow(phases)
    if not announcers:
        yield
        return
    over = threading.Event()
    thread = threading.Thread(
        target=_announce_until, args=(run, announcers, over), daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        over.set()
        run.news.set()
        thread.join(len(announcers) * _TIMEOUT_SECONDS + 1.0)
        for announcer in announcers:
            announcer.announce(run, "ended", ended=True)


def _announce_until(
    run: AnnouncedRun, announcers: Sequence[SidecarAnnouncer], over: threading.Event
) -> None:
    while True:
        run.news.clear()
        if over.is_set():
            return
        phase, left = run.phase()
        for announcer in announcers:
            announcer.announce(run, phase)
        run.news.wait(min(max(left, 0.1), _EVERY_SECONDS))


def post_json(url: str, document: Mapping[str, Any], run: AnnouncedRun) -> None:
    """Send a POST request to the sidecar; an error becomes a problem of the run."""
    try:
        parts = parse_url(url)
        with urllib3.PoolManager() as pool:
            answer = pool.request(
                "POST",
                parts._replace(auth=None).url,
                body=json.dumps(document).encode(),
                headers={"Content-Type": "application/json", **_password(parts.auth)},
                timeout=_TIMEOUT_SECONDS,
                retries=False,
                redirect=False,
            )
    except urllib3.exceptions.HTTPError as error:
        run.note(
            f"the run could not be reported to the sidecar at {_without_secrets(url)}: {error}"
        )
        return
    if answer.status not in _OK:
        text = answer.data[:_SHOWN].decode("utf-8", "replace").strip()
        run.note(
            f"the sidecar at {_without_secrets(url)} did not take it: HTTP {answer.status}: {text}"
        )


def _password(user_info: str | None) -> dict[str, str]:
    """Return the header of basic authentication; urllib3 leaves it to its callers."""
    if user_info is None:
        return {}
    encoded = base64.b64encode(unquote(user_info).encode()).decode()
    return {"Authorization": f"Basic {encoded}"}


def _without_secrets(url: str) -> str:
    """Return the URL without parts that may be secret: user, password, query."""
    return _USER.sub("//", url.partition("?")[0])


def _checked(url: str, option: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise PlanError(
            f"found {_without_secrets(url)!r}; want a URL like http://localhost:8004",
            option,
        )
    return url
