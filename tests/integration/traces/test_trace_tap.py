"""The tap for traces as senders meet it: hostile bodies, an address that is taken."""

from __future__ import annotations

import json
import socket
import subprocess
import sys

import pytest
from attack_connections import sent
from attacks import JSON, PROTOBUF
from bombs import gzip_bomb, unfinished_spans
from monitoring import free_port
from traced_tritons import traces_config

pytestmark = pytest.mark.triton


class Nowhere:
    """The addresses of a server that is not there."""

    grpc = http = metrics = "127.0.0.1:9"


SIZE = 2 << 20
HOSTILE = {
    "empty lists": (b'{"resourceSpans":[' + b"[]," * (SIZE // 3 - 99) + b"[]]}", JSON),
    "deep": (b"[" * SIZE, JSON),
    "noise": (bytes(range(256)) * (SIZE // 256), JSON),
    "many models": (
        unfinished_spans(0, 4000),
        JSON,
    ),
    "bomb": (
        gzip_bomb(100),
        {**JSON, "content-encoding": "gzip"},
    ),
    "protobuf of nothing": (
        b"\x0a\x00" * (SIZE // 2),
        PROTOBUF,
    ),
}
ALLOWED_MEGABYTES = 300


def test_hostile_bodies_cost_the_sidecar_an_answer_and_little_memory(
    settings, start_sidecar
):
    port = free_port()
    sidecar = start_sidecar(traces_config(settings, Nowhere, port))
    resident = "process_resident_memory_bytes"
    before = sidecar.wait(lambda page: page.value(resident)).value(resident)
    answers = {name: set() for name in HOSTILE}
    for _ in range(5):
        for name, (body, headers) in HOSTILE.items():
            answers[name].add(sent(("127.0.0.1", port), "/v1/traces", body, headers))
    assert answers == {
        "empty lists": {400},
        "deep": {400},
        "noise": {400},
        "many models": {200},
        "bomb": {413},
        "protobuf of nothing": {400},
    }
    refused = "tritonwatch_tap_requests_total"
    page = sidecar.wait(lambda page: page.sum(refused, outcome="malformed") == 20)
    assert page.sum(refused, outcome="too_large") == 5
    assert page.value(resident) - before < ALLOWED_MEGABYTES * 1e6
    assert sidecar.get("/-/healthy").status == 200


def test_a_tap_address_that_is_taken_is_said_and_nothing_runs(
    settings, start_sidecar, tmp_path
):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        file = tmp_path / "config.yaml"
        file.write_text(json.dumps(traces_config(settings, Nowhere, port)), "ascii")
        ended = subprocess.run(
            [sys.executable, "-m", "exporter.cli", "serve", "--config", str(file)],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert ended.returncode == 2
    assert f"cannot listen on 127.0.0.1:{port}" in ended.stderr
    assert "Traceback" not in ended.stderr
