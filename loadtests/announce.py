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
from loadtests.profiles.profile import Phase

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
    """A run that the `runs` collectors of sidecars show as triton_run_info.

    Args:
        kind: like "load" or "chaos".
        name: of the scenario; a suffix makes it unique.
        profile: of the load.
        sidecars: URLs of the taps that it is announced to.
    """

    def __init__(
        self, kind: str, name: str, profile: str, sidecars: Sequence[str] = ()
    ) -> None:
        self.name = f"{name}-{secrets.token_hex(3)}"
        self.problems: list[str] = []
        """Sidecars that could not be reached, and the reasons."""
        self._about = {"run": self.name, "kind": kind, "profile": profile}
        self._sidecars = [_checked(url).rstrip("/") for url in sidecars]
        self._news = threading.Event()
        """Set when another phase begins and when the run ends."""
        self._over = threading.Event()
        self._schedule: tuple[float, Sequence[Phase]] = (time.monotonic(), ())

    @contextlib.contextmanager
    def announced(self, phases: Sequence[Phase] = ()) -> Generator[None]:
        """Announce the run while the block lasts, and its end.

        `phases` are in seconds from now; a run that learns them later calls `enter` or
        `follow`.
        """
        self.follow(phases)
        if not self._sidecars:
            yield
            return
        thread = threading.Thread(target=self._announce_until_over, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            self._news.set()
            thread.join(len(self._sidecars) * _TIMEOUT_SECONDS + 1.0)
            self._announce("ended", ended=True)

    def follow(self, phases: Sequence[Phase]) -> None:
        """Set the phases from now on; their times count from now."""
        self._schedule = (time.monotonic(), phases)
        self._news.set()

    def enter(self, phase: str) -> None:
        """Enter a phase now."""
        self.follow((Phase(phase, 0.0, math.inf, None),))

    def note(self, problem: str) -> None:
        """Keep a problem, once."""
        if problem not in self.problems:
            self.problems.append(problem)

    def _phase(self) -> tuple[str, float]:
        """Return the current phase, and the seconds until it changes."""
        began, phases = self._schedule
        elapsed = time.monotonic() - began
        name = next(
            (p.name for p in reversed(phases) if p.start_seconds <= elapsed), "start"
        )
        changes = (p.start_seconds for p in phases if p.start_seconds > elapsed)
        return name, min(changes, default=math.inf) - elapsed

    def _announce_until_over(self) -> None:
        while True:
            self._news.clear()
            if self._over.is_set():
                return
            phase, left = self._phase()
            self._announce(phase)
            self._news.wait(min(max(left, 0.1), _EVERY_SECONDS))

    def _announce(self, phase: str, *, ended: bool = False) -> None:
        notice = {"phase": phase, "ttl_seconds": TTL_SECONDS, "ended": ended}
        for url in self._sidecars:
            post_json(f"{url}/v1/runs", self._about | notice, self)


def sidecars_of(options: argparse.Namespace) -> tuple[str, ...]:
    """Return the URL that `--sidecar` of `command_options.add_announcers` names."""
    return () if options.sidecar is None else (options.sidecar,)


@contextlib.contextmanager
def announced(
    options: argparse.Namespace,
    kind: str,
    name: str,
    profile: str,
    phases: Sequence[Phase] = (),
) -> Generator[AnnouncedRun]:
    """Announce the run of a command while the block lasts, and report problems at its end.

    Raises:
        PlanError: the address of the sidecar is invalid.
    """
    run = AnnouncedRun(kind, name, profile, sidecars_of(options))
    try:
        with run.announced(phases):
            yield run
    finally:
        for problem in run.problems:
            sys.stderr.write(f"tritonwatch: {problem}\n")


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
            f"the run could not be reported to the sidecar at {_without_secrets(url)}: {error.__cause__ or error}"
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


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:  # half an IPv6 address
        is_url = False
    if not is_url:
        raise PlanError(
            f"found {_without_secrets(url)!r}; want a URL like http://localhost:8004",
            "--sidecar",
        )
    return url
