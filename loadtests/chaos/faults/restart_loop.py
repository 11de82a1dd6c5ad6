"""The server crashes again and again: SIGKILL a while after each of its starts.

Whatever keeps the deployment up starts it; a target without such a thing sees the first
kill only. The loop kills what listens on the server's HTTP port, and only if it is the
same program.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from pydantic import Field

from loadtests.chaos.faults.base import Fault, FaultFailedError, FaultRefusedError
from loadtests.chaos.faults.needs import server_of
from loadtests.chaos.primitives import agents
from loadtests.chaos.primitives.backends import Belongings, command_line, listener
from loadtests.chaos.primitives.processes import new_token

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadtests.chaos.site import Site

_POLL_SECONDS: Final = 0.05
_END_SECONDS: Final = 2.0


class RestartLoop(Fault):
    """Each start loads every model, and then it is gone again."""

    strength: ClassVar[str | None] = "up_seconds"

    kind: Literal["restart_loop"] = "restart_loop"
    up_seconds: float = Field(default=1.0, ge=0.0, le=3600.0)
    """How long each server may listen before it is killed; the first is killed at once."""
    longest_seconds: float = Field(default=600.0, gt=0.0, le=86_400.0)
    """After which the loop ends by itself."""

    def require(self, site: Site) -> None:
        """A server on this host, whose successors are found where it listens."""
        if listener(site.http) != server_of(site):
            raise FaultRefusedError(
                f"{site.name} is not who listens at {site.http} on this host, so that "
                "the servers to come would not be found",
                "take kill_server, or a container with the host's network",
            )

    def prepare(self, site: Site) -> dict[str, Any]:
        """The first server, where the next ones listen, and the loop's token."""
        server = server_of(site)
        token = new_token()
        return {
            "token": token,
            "first": Belongings.of(server).to_record(),
            "program": os.fsdecode(command_line(server.pid)[0]),
            "address": site.http,
            "ledger": str(Path(tempfile.gettempdir()) / f"{token}.killed"),
            "up_seconds": self.up_seconds,
            "longest_seconds": self.longest_seconds,
        }

    def inject(self, record: dict[str, Any]) -> None:
        """Start the loop; the first server is dead when this returns."""
        agents.start(
            record["token"],
            __name__,
            record,
            longest_seconds=record["longest_seconds"],
        )

    def missing(self, record: dict[str, Any]) -> list[str]:
        """Return whether the first server lives, and the loop does not."""
        first = Belongings.from_record(record["first"]).server
        missing = [f"process {first.pid} still runs"] if first.alive else []
        if not agents.running(record["token"]):
            missing.append("the loop that kills has ended")
        return missing

    @classmethod
    def revert(cls, record: dict[str, Any]) -> None:
        """End the loop, and clear away what the servers left that it killed."""
        agents.stop(record["token"])
        for killed in _killed(record):
            killed.sweep()
        ledger = Path(record["ledger"])
        ledger.unlink(missing_ok=True)

    @classmethod
    def residue(cls, record: dict[str, Any]) -> list[str]:
        """The loop, what killed servers left, and the loop's own file."""
        left = agents.left(record["token"])
        for killed in _killed(record):
            left += killed.left()
        if Path(record["ledger"]).exists():
            left.append(f"file {record['ledger']} is left")
        return left


def work(settings: dict[str, Any], ready: Callable[[], None]) -> None:
    """Kill the first server, and each that follows it."""
    first = Belongings.from_record(settings["first"])
    _kill(first)
    ready()
    program = settings["program"].encode()
    while True:
        server = listener(settings["address"], program)
        if server is None:
            time.sleep(_POLL_SECONDS)
            continue
        time.sleep(settings["up_seconds"])
        belongings = Belongings.of(server)
        # Before the kill, so that whoever ends the loop knows what may be left.
        with Path(settings["ledger"]).open("a", encoding="utf-8") as ledger:
            ledger.write(json.dumps(belongings.to_record()) + "\n")
        _kill(belongings)


def _kill(belongings: Belongings) -> None:
    server = belongings.server
    if not server.kill(_END_SECONDS):
        raise FaultFailedError(f"process {server.pid} does not end after SIGKILL")
    belongings.sweep()


def _killed(record: dict[str, Any]) -> list[Belongings]:
    found = [Belongings.from_record(record["first"])]
    with contextlib.suppress(FileNotFoundError):
        for line in Path(record["ledger"]).read_text("utf-8").splitlines():
            # The last one may be cut short: that server was not killed yet.
            with contextlib.suppress(ValueError):
                found.append(Belongings.from_record(json.loads(line)))
    return found
