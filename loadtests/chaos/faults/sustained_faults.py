"""Faults that a process keeps up: other users of the CPU, other clients."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import secrets
import threading
import time
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from pydantic import Field

from exporter.triton.http_path import model_path
from loadtests.chaos.faults.fault import SustainedFault
from loadtests.chaos.primitives import model_control
from loadtests.chaos.primitives.process_refs import new_token, started_with
from loadtests.errors import FaultFailedError, FaultRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadtests.chaos.site import Site

_SLICE_SECONDS: Final = 0.05
_SPIN: Final = range(2000)
_INPUT: Final = "text_input"
_WAIT_SECONDS: Final = 600.0
_FIRST_SECONDS: Final = 10.0
_SHOWN_BYTES: Final = 300
_PAUSE_SECONDS: Final = 0.2


class CpuHog(SustainedFault):
    """A noisy neighbour: all processes of the host get less CPU time, this program too."""

    of_host: ClassVar[bool] = True
    kind: Literal["cpu_hog"] = "cpu_hog"
    busy_percent: float = Field(default=100.0, gt=0, le=100)
    """Share of a CPU's time that each process takes while no other needs it."""
    processes: int | None = Field(default=None, ge=1, le=1024)
    """Number of processes; by default one for each CPU that this program may use."""

    def prepare(self, site: Site) -> dict[str, Any]:  # noqa: ARG002 - for any site
        """Return how many, how busy, and their token."""
        return {
            "token": new_token(),
            "processes": self.processes or len(os.sched_getaffinity(0)),
            "busy_ratio": self.busy_percent / 100,
        }

    @classmethod
    def work(cls, record: dict[str, Any], ready: Callable[[], None]) -> None:
        """Compute in the given number of processes, without a result."""
        parent = os.getpid()
        for _ in range(record["processes"] - 1):
            if os.fork() == 0:
                while os.getppid() == parent:
                    _burn(record["busy_ratio"])
                os._exit(0)
        ready()
        while True:
            _burn(record["busy_ratio"])

    def missing(self, record: dict[str, Any]) -> list[str]:
        """Report those that do not run."""
        found, wanted = len(started_with(record["token"])), record["processes"]
        return [] if found >= wanted else [f"{found} of {wanted} processes run"]


def _burn(busy_ratio: float) -> None:
    """One slice: compute, then rest. By CPU time, so that waiting counts as rest."""
    began, used = time.monotonic(), time.process_time()
    while time.process_time() - used < busy_ratio * _SLICE_SECONDS:
        for _ in _SPIN:
            pass
    rest = _SLICE_SECONDS - (time.monotonic() - began)
    if rest > 0:
        time.sleep(rest)


class CacheStorm(SustainedFault):
    """A storm of long answers that fills a language model's cache: all others wait.

    When a stream ends, the next one is sent. The clients are a process of this host.
    """

    kind: Literal["cache_storm"] = "cache_storm"
    model: str
    """A decoupled model with the inputs of Triton's vLLM backend."""
    streams: int = Field(default=32, ge=1, le=1000)
    """Requests at a time."""
    prompt_tokens: int = Field(default=100, ge=1, le=100_000)
    """Words of each prompt; the first is its own, since caches keep equal prompts once."""
    answer_tokens: int = Field(default=400, ge=1, le=100_000)
    """`max_tokens` of each answer, whose end is ignored."""

    def prepare(self, site: Site) -> dict[str, Any]:
        """Return the request, how many at a time, and the token of the process."""
        try:
            found = model_control.configuration(site.http, self.model)
        except model_control.ControlError as error:
            raise FaultRefusedError(
                f"{site.name} does not describe model {self.model!r}: {error}",
                "start the server, or name a model that it has loaded",
            ) from None
        policy = found.get("model_transaction_policy") or {}
        inputs = {entry.get("name") for entry in found.get("input", ())}
        if not policy.get("decoupled") or _INPUT not in inputs:
            raise FaultRefusedError(
                f"model {self.model!r} is not a language model that streams from "
                f"{_INPUT!r}",
                "take cpu_hog, or a model of Triton's vLLM backend",
            )
        sampling = {"max_tokens": self.answer_tokens, "ignore_eos": True}
        body = {
            _INPUT: " ".join(["storm"] * (self.prompt_tokens - 1)),
            "stream": True,
            "sampling_parameters": json.dumps(sampling),
        }
        return {
            "token": new_token(),
            "http": site.http,
            "path": f"{model_path(self.model)}/generate_stream",
            "body": body,
            "streams": self.streams,
        }

    @classmethod
    def work(cls, record: dict[str, Any], ready: Callable[[], None]) -> None:
        """Keep the streams up; each reads what it gets.

        Ready once the server streams an answer; the others may have to wait for one.

        Raises:
            FaultFailedError: it refuses them.
        """
        answers: queue.Queue[str] = queue.Queue(maxsize=1)
        threads = [
            threading.Thread(target=_keep_asking, args=(record, answers), daemon=True)
            for _ in range(record["streams"])
        ]
        for thread in threads:
            thread.start()
        try:
            refusal = answers.get(timeout=_FIRST_SECONDS)
        except queue.Empty:
            refusal = f"no answer within {_FIRST_SECONDS:g} s"
        if refusal:
            raise FaultFailedError(f"{record['path']}: {refusal}")
        ready()
        for thread in threads:
            thread.join()

    def missing(self, record: dict[str, Any]) -> list[str]:
        """Report clients that do not run."""
        return [] if started_with(record["token"]) else ["its clients do not run"]


def _keep_asking(record: dict[str, Any], answers: queue.Queue[str]) -> None:
    """Send one request after the other; `answers` gets refusals, "" for a stream."""
    pause = threading.Event()
    while True:
        connection = HTTPConnection(record["http"], timeout=_WAIT_SECONDS)
        try:
            connection.request("POST", record["path"], _body(record))
            answer = connection.getresponse()
            part = answer.read1()
            _note(answers, _refusal(answer.status, part))
            while part:
                part = answer.read1()
        except (OSError, HTTPException) as error:
            _note(answers, f"{type(error).__name__}: {error}")
        connection.close()
        pause.wait(_PAUSE_SECONDS)


def _body(record: dict[str, Any]) -> str:
    body = dict(record["body"])
    body[_INPUT] = f"{secrets.token_hex(4)} {body[_INPUT]}".rstrip()
    return json.dumps(body)


def _refusal(status: int, content: bytes) -> str:
    if status == HTTPStatus.OK and content:
        return ""
    return (
        f"status {status}: {content[:_SHOWN_BYTES].decode('utf-8', 'replace').strip()}"
    )


def _note(answers: queue.Queue[str], refusal: str) -> None:
    # Nobody reads it once the storm is up.
    with contextlib.suppress(queue.Full):
        answers.put_nowait(refusal)
