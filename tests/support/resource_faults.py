"""What tests of faults of resources have in common: a record from its journal, undone twice."""

from __future__ import annotations

import contextlib
import http.client
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from exporter.triton.embedded import EmbeddedTriton
    from loadtests.chaos.faults import Fault

DOUBLE = Path(__file__).parents[1] / "data" / "models" / "double"


def prepared(fault: Fault, site: Any, undone: list) -> dict[str, Any]:
    """A record as a journal gives it back, which will be undone in any case."""
    fault.require(site)
    record = json.loads(json.dumps(fault.prepare(site)))
    assert fault.missing(record)
    assert fault.residue(record) == []
    undone.append((type(fault), record))
    # To undo what was never done does nothing.
    type(fault).revert(record)
    assert fault.residue(record) == []
    return record


def is_undone(fault: Fault, record: dict[str, Any]) -> None:
    for _ in range(2):
        type(fault).revert(record)
        assert fault.residue(record) == []
    assert fault.missing(record)


def infer(server: EmbeddedTriton, rows: int = 1, timeout: float = 30.0) -> float:
    """Seconds of one inference of `double`, its answer checked."""
    data = [1.0] * (8 * rows)
    tensor = {"name": "x", "shape": [rows, 8], "datatype": "FP32", "data": data}
    connection = http.client.HTTPConnection(
        "127.0.0.1", server.ports.http, timeout=timeout
    )
    started = time.perf_counter()
    with contextlib.closing(connection):
        connection.request(
            "POST", "/v2/models/double/infer", json.dumps({"inputs": [tensor]})
        )
        answer = json.load(connection.getresponse())
    assert answer["outputs"][0]["data"] == [2.0] * (8 * rows)
    return time.perf_counter() - started
