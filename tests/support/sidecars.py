"""The sidecar as a process of a test's own, and how to read its page."""

from __future__ import annotations

import contextlib
import http.client
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from commands import COMMAND
from waiting import PATIENCE_SECONDS, patience, pause, wait_until

from exporter.output.exposition import parse_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


# What a page says.


class Page:
    """One scrape in Prometheus text format."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.series: dict[str, list[tuple[dict[str, str], float]]] = {}
        for name, labels, value in parse_text(body):
            self.series.setdefault(name, []).append((labels, value))

    def all(self, name: str, **labels: str) -> list[tuple[dict[str, str], float]]:
        """The series of that name whose labels include these."""
        wanted = labels.items()
        return [s for s in self.series.get(name, ()) if wanted <= s[0].items()]

    def value(self, name: str, **labels: str) -> float | None:
        """The one such series, None where there is none."""
        found = self.all(name, **labels)
        assert len(found) < 2, f"{name}{labels} is ambiguous: {found}"
        return found[0][1] if found else None

    def sum(self, name: str, **labels: str) -> float:
        """All such series added up."""
        return sum(value for _, value in self.all(name, **labels))

    def values(self, name: str, **labels: str) -> list[float]:
        """The values of all such series."""
        return [value for _, value in self.all(name, **labels)]

    def label(self, name: str, label: str, **labels: str) -> set[str]:
        """The values one label has in them."""
        return {found[label] for found, _ in self.all(name, **labels)}


@dataclass(frozen=True)
class Answer:
    """An HTTP answer of the sidecar."""

    status: int
    body: bytes
    headers: dict[str, str]
    seconds: float

    @property
    def text(self) -> str:
        return self.body.decode()


# The sidecar.


class SidecarProcess:
    """`tritonwatch serve` on a port of its own choosing."""

    def __init__(
        self,
        config: dict[str, Any],
        folder: Path,
        *arguments: str,
        within: Sequence[str] = (),
    ) -> None:
        """`within` is a command that runs the rest of its line."""
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / "tritonwatch.yaml"
        self.write(config)
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*within, COMMAND, "serve", "--config", str(self.file), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.port = 0

    def write(self, config: dict[str, Any]) -> None:
        """Replace the configuration file; SIGHUP makes it count."""
        self.file.write_text(yaml.safe_dump(config), "utf-8")

    @property
    def log(self) -> str:
        return self._log.read_text("utf-8")

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    @property
    def resident_bytes(self) -> int:
        """Of the process now."""
        statm = Path(f"/proc/{self.process.pid}/statm").read_text("ascii")
        return int(statm.split()[1]) * 4096

    def wait_listening(self) -> None:
        """Wait for the line that says where it listens."""

        def address() -> re.Match[str] | None:
            assert self.running, f"it ended while starting:\n{self.log}"
            return re.search(r"event=serving .*address=\S*?:(\d+)", self.log)

        found = wait_until(address, lambda: f"it does not listen:\n{self.log}")
        assert found is not None
        self.port = int(found[1])

    def get(
        self,
        path: str,
        *,
        method: str = "GET",
        timeout: float | None = None,
        **headers: str,
    ) -> Answer:
        """One request on a connection of its own, by default with `patience()`."""
        timeout = timeout or patience()
        started = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        with contextlib.closing(connection):
            sent = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, headers=sent)
            reply = connection.getresponse()
            body = reply.read()
        taken = time.monotonic() - started
        answered = {name.lower(): value for name, value in reply.getheaders()}
        return Answer(reply.status, body, answered, taken)

    def page(self) -> Page:
        """What /metrics says now."""
        answer = self.get("/metrics")
        assert answer.status == 200, answer.text
        return self.parsed(answer)

    def parsed(self, answer: Answer) -> Page:
        """An answer in Prometheus text."""
        return Page(answer.body)

    def wait(
        self,
        holds: Callable[[Page], bool],
        timeout_seconds: float = PATIENCE_SECONDS,
        *,
        since: float | None = None,
    ) -> Page:
        """The first page on which `holds`; fails with the last page and the log.

        `timeout_seconds` counts from `since`, an instant of time.monotonic(), and is
        stretched by `patience`.
        """
        started = time.monotonic()
        since = since or started
        while True:
            asked = time.monotonic()
            page = self.page()
            if holds(page):
                return page
            if asked > since + patience(timeout_seconds):
                shown = "\n".join(
                    line
                    for line in page.body.decode().splitlines()
                    if not line.startswith("#") and "_bucket{" not in line
                )
                pytest.fail(
                    f"did not come about in {asked - since:.1f} s; the page:\n"
                    f"{shown}\nthe log:\n{self.log[-4000:]}"
                )
            pause(asked - started)

    def settle(self, looks: int = 2) -> Page:
        """The page after so many more successful looks at the statistics."""
        stamp = "tritonwatch_collector_last_success_timestamp_seconds"
        seen: set[float] = set()

        def looked(page: Page) -> bool:
            value = page.value(stamp, collector="statistics")
            if value is not None:
                seen.add(value)
            fresh = page.all("triton_requests_total")
            return len(seen) > looks and bool(fresh)

        return self.wait(looked)

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, float]:
        """Send the signal; the exit status and the seconds it took."""
        started = time.monotonic()
        self.process.send_signal(number)
        code = self.process.wait(patience())
        return code, time.monotonic() - started

    def close(self) -> None:
        """End it by all means."""
        if self.running:
            self.process.terminate()
            try:
                self.process.wait(patience())
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
