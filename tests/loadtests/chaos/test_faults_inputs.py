"""Bad requests beside good ones, on a real Triton."""

from __future__ import annotations

import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from fault_cycles import in_effect, recorded, undone
from sites import empty_site

from loadtests.chaos.faults import FaultFailedError, FaultRefusedError
from loadtests.chaos.faults.bad_requests import CorruptInputs, OversizedInputs
from loadtests.chaos.primitives.process_refs import started_with


@pytest.mark.parametrize(
    "fault",
    [
        CorruptInputs(model="double", requests_per_second=200),
        OversizedInputs(model="sleepy", megabytes=4, requests_per_second=20),
    ],
    ids=["corrupt", "oversized"],
)
def test_bad_requests_are_refused_and_good_ones_answered(site, client, fault) -> None:
    server = site.server()
    with in_effect(fault, site) as record:
        for _ in range(10):
            assert client.double() == "right"
            assert client.sleepy() == "right"
            time.sleep(0.02)
        assert fault.missing(record) == []
    assert site.server() == server
    client.serves()


def test_an_oversized_request_is_not_held_by_its_sender(site, client) -> None:
    with in_effect(OversizedInputs(model="double", megabytes=256), site) as record:
        (sender,) = started_with(record["token"])
        status = Path(f"/proc/{sender.pid}/status").read_text()
        (peak,) = re.findall(r"VmHWM:\s*(\d+) kB", status)
        assert int(peak) << 10 < record["megabytes"] << 20


class Credulous(BaseHTTPRequestHandler):
    """A server that takes whatever it is sent."""

    answers: ClassVar[dict[str, Any]] = {
        "/v2/repository/index": [{"name": "double", "state": "READY"}],
        "/v2/models/double": {
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [8]}],
            "outputs": [{"name": "y", "datatype": "FP32", "shape": [8]}],
        },
    }

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(self.answers.get(self.path, {})).encode())

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass


def test_corrupt_requests_that_are_taken_for_right_are_told() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Credulous) as server:
        threading.Thread(target=server.serve_forever).start()
        fault = CorruptInputs(model="double")
        site = empty_site(http=f"127.0.0.1:{server.server_port}")
        record = recorded(fault, site)
        with pytest.raises(FaultFailedError, match="as if it were right"):
            fault.inject(record)
        undone(fault, record)
        server.shutdown()


def test_a_sender_that_gets_no_answer_has_failed(site, client) -> None:
    fault = CorruptInputs(model="double")
    record = recorded(fault, site)
    site.triton.kill()
    with pytest.raises(
        FaultFailedError, match=r"nobody answers|did not answer|refused"
    ):
        fault.inject(record)
    undone(fault, record)


def test_a_model_that_is_not_loaded_is_refused(site) -> None:
    for fault in (CorruptInputs(model="x"), OversizedInputs(model="x")):
        with pytest.raises(FaultRefusedError, match=r"it has \['double', 'sleepy'\]"):
            fault.require(site)
