"""A Locust worker: keeps a sender, and turns its messages into events."""

from __future__ import annotations

import json
import sys
import time
from typing import Any, Final

import gevent
from gevent import subprocess

from loadtests.distributed import sender
from loadtests.result import Outcome, Requests
from loadtests.result_file import packed
from loadtests.scenario import Scenario

_END_SECONDS: Final = 10.0
"""Time for the sender's result, once no answer is waited for any more."""
_BURST: Final = 500
"""Events fired without letting others run."""


class RequestFault(Exception):  # noqa: N818 - what Locust lists as a failure
    """A request without a correct answer; one a kind."""

    def __repr__(self) -> str:
        return str(self)


_FAULTS: Final = {
    Outcome.ERROR: RequestFault("error: the server refused it or failed"),
    Outcome.WRONG: RequestFault("wrong: not an answer of this model"),
    Outcome.TIMEOUT: RequestFault("timeout"),
    Outcome.REJECTED: RequestFault("rejected: too many in flight"),
    Outcome.UNSENT: RequestFault("unsent: the sender came too late"),
}


class WorkerRun:
    """One run of this worker. Everything happens in gevent's hub."""

    def __init__(self, environment: Any, scenario: str) -> None:
        self._environment = environment
        self._scenario = Scenario.model_validate_json(scenario)
        self._users = 0
        self._started_at: float | None = None
        self._ended = False
        self._entries: list[str] = []
        self._news: list[Requests] = []
        self._sender: Any = subprocess.Popen(
            [sys.executable, "-P", "-m", "loadtests.distributed.sender"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._order(scenario)
        self._reader = gevent.spawn(self._read)

    def start(self, order: dict[str, Any]) -> None:
        """Set the common start and this worker's share, when all workers are ready.

        The start is so many seconds from now, since workers' clocks may differ.
        """
        self._started_at = time.time() + float(order["starts_in_seconds"])
        self._order(json.dumps({**order, "start_at": self._started_at}))
        self._resize()

    def user_came(self) -> None:
        """Keep one more request in flight, in a closed loop."""
        self._users += 1
        self._resize()

    def user_left(self) -> None:
        """Keep one less."""
        self._users -= 1
        self._resize()

    def stop(self) -> None:
        """Stop sending; wait for requests in flight, for a limited time."""
        if not self._ended:
            self._order(json.dumps({"stop": True}))
        self._reader.join(self._scenario.timeout_seconds + _END_SECONDS)
        if self._sender.poll() is None and not self._ended:
            self._sender.kill()
            self._reader.join(_END_SECONDS)

    def news(self) -> dict[str, Any]:
        """Return the requests that ended since the last call."""
        news, self._news = self._news, []
        return packed(Requests.joined(news))

    def _resize(self) -> None:
        if self._started_at is not None and not self._ended:
            self._order(json.dumps({"concurrency": self._users}))

    def _order(self, line: str) -> None:
        try:
            self._sender.stdin.write(line.encode() + b"\n")
            self._sender.stdin.flush()
        except (BrokenPipeError, ValueError):
            return  # it has ended; the reader reports it

    def _read(self) -> None:
        try:
            while (frame := sender.read(self._sender.stdout)) is not None:
                self._handle(frame)
        except ValueError as error:
            self._fail(f"the sender broke off: {error}")
        if not self._ended:
            self._fail("the sender ended without a result")
        self._sender.stdin.close()
        self._sender.wait()

    def _handle(self, frame: sender.Frame) -> None:
        if frame.requests is not None:
            self._news.append(frame.requests)
            self._fire(frame.requests)
        match frame.kind:
            case "ready":
                self._entries = list(frame.content["entries"])
                self._send_to_master("ready", {"described": frame.content})
            case "result":
                self._ended = True
                self._send_to_master("done", {**frame.content, "news": self.news()})
            case "failed":
                self._fail(str(frame.content["message"]))

    def _fail(self, message: str) -> None:
        self._ended = True
        self._send_to_master("failed", {"message": message, "news": self.news()})

    def _send_to_master(self, what: str, content: dict[str, Any]) -> None:
        runner = self._environment.runner
        message = {"worker": runner.client_id, **content}
        runner.send_message(f"tritonwatch_{what}", message)

    def _fire(self, requests: Requests) -> None:
        """Locust's own event for each, so that its table and every listener work."""
        fire = self._environment.events.request.fire
        origin = self._started_at or 0.0
        milliseconds = (requests.done - requests.intended) * 1e3
        for place in range(len(requests)):
            outcome = Outcome(int(requests.outcome[place]))
            sent = outcome not in (Outcome.REJECTED, Outcome.UNSENT)
            fire(
                request_type=self._scenario.target.protocol,
                name=self._entries[requests.entry[place]],
                response_time=float(milliseconds[place]) if sent else None,
                response_length=0,
                exception=_FAULTS.get(outcome),
                context={},
                start_time=origin + float(requests.intended[place]),
            )
            if place % _BURST == _BURST - 1:
                gevent.sleep(0)
