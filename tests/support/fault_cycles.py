"""A fault's life on a real deployment: in effect, undone by somebody else, gone."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from meanwhile import repeated
from waiting import PATIENCE_SECONDS, wait_until

from exporter.errors import TritonError
from exporter.triton.http import HttpClient
from exporter.triton.protocol_types import InferRequest

if TYPE_CHECKING:
    from collections.abc import Generator

    from loadtests.chaos.faults.fault import Fault
    from loadtests.chaos.site import Site

_UNDO = """
import json, sys
from loadtests.chaos.faults import FAULTS
kind, record = json.load(sys.stdin)
FAULTS[kind].revert(record)
"""


def kind_of(fault: Fault) -> str:
    return type(fault).model_fields["kind"].default


def recorded(fault: Fault, site: Site) -> dict[str, Any]:
    """Its record as a journal gives it back; nothing of it is there yet."""
    record = json.loads(json.dumps(fault.prepare(site)))
    assert type(fault).residue(record) == []
    return record


@contextlib.contextmanager
def in_effect(fault: Fault, site: Site) -> Generator[dict[str, Any]]:
    """Within, the fault is injected and seen to be; after, undone and seen to be gone.

    It is undone in another process, which knows nothing but the record, and again here.
    """
    record = recorded(fault, site)
    assert fault.missing(record) != []
    try:
        fault.inject(record)
        wait_until(
            lambda: fault.missing(record) == [], f"{kind_of(fault)} in effect", 5
        )
        yield record
    finally:
        undo_elsewhere(kind_of(fault), record)
        undone(fault, record)


def undo_elsewhere(kind: str, record: dict[str, Any]) -> None:
    told = json.dumps([kind, record])
    subprocess.run([sys.executable, "-c", _UNDO], input=told, text=True, check=True)


def injected(fault: Fault, site: Site, later: list[Any]) -> dict[str, Any]:
    """Its record, once it is in effect; the fixture `undone` is told to undo it in any case."""
    record = recorded(fault, site)
    assert fault.missing(record)
    later.append((type(fault), record))
    # To undo what was never done does nothing.
    undone(fault, record)
    fault.inject(record)
    assert fault.missing(record) == []
    assert fault.residue(record)
    return record


def is_undone(fault: Fault, record: dict[str, Any]) -> None:
    """Undo it; nothing is left, and nothing is in effect."""
    undone(fault, record)
    assert fault.missing(record)


def undone(fault: Fault, record: dict[str, Any]) -> None:
    """Undo it twice more; nothing is left."""
    type(fault).revert(record)
    type(fault).revert(record)
    assert type(fault).residue(record) == []


class Client:
    """Somebody who asks models over HTTP and looks at the answer."""

    def __init__(self, http: str) -> None:
        self._http = HttpClient(http)
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def double(self, value: float = 1.0, timeout_seconds: float = 5.0) -> str:
        """ "right" or "wrong", where it answers; else the error's class and text."""
        x = np.full((1, 8), value, np.float32)
        return self.ask("double", "x", x, 2 * x, timeout_seconds)

    def sleepy(self, timeout_seconds: float = 5.0) -> str:
        x = np.ones(1, np.float32)
        return self.ask("sleepy", "x", x, x, timeout_seconds)

    def serves(self, timeout_seconds: float = PATIENCE_SECONDS) -> None:
        """Both models answer rightly, after a while at most."""

        def right() -> bool:
            return self.double() == "right" and self.sleepy() == "right"

        wait_until(right, "double and sleepy answer", timeout_seconds)

    def says(self, path: str) -> bool:
        """Whether a GET answers 200."""
        try:
            self._http.get(path, timeout_seconds=5.0)
        except TritonError:
            return False
        return True

    def ask(
        self,
        model: str,
        name: str,
        x: Any,
        wanted: Any,
        timeout_seconds: float = 5.0,
    ) -> str:
        self._count += 1
        request = InferRequest(
            model, "", f"client-{self._count}", {name: x}, {name: "FP32"}
        )
        try:
            reply = self._http.infer(request, timeout_seconds=timeout_seconds)
        except TritonError as error:
            return f"{type(error).__name__}: {error}"
        data = np.frombuffer(reply.outputs[0].data, np.float32)
        return "right" if np.array_equal(data, wanted.ravel()) else "wrong"


@contextlib.contextmanager
def asking(http: str) -> Generator[list[str]]:
    """Somebody who asks `double` again and again; what the answers were so far."""
    answers: list[str] = []
    with (
        Client(http) as client,
        repeated(lambda: answers.append(client.double()), 0.01),
    ):
        wait_until(lambda: answers, "somebody asks")
        yield answers
