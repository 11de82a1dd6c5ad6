"""What a line of the shipped formats says of an inference request."""

from __future__ import annotations

import json

import pytest

from exporter.features.access_log.access_log_collector import GRPC_PATH, logged_request
from exporter.taps.foreign_json import ForeignJsonError
from exporter.triton import USER_AGENT

MOST = 16 << 10


def read(**entry):
    found = logged_request(json.dumps(entry).encode(), MOST)
    return found and (found.model, found.version, found.outcome)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, "success"),
        ("200", "success"),
        (400, "failure"),
        (500, "failure"),
        (503, "failure"),
        (499, "abandoned"),
        (0, "abandoned"),
        (None, "abandoned"),
    ],
)
def test_a_status_of_http_is_an_outcome(status, outcome):
    path = "/v2/models/m/infer"
    assert read(path=path, status=status, agent="curl") == ("m", "", outcome)


@pytest.mark.parametrize(
    ("status", "grpc_status", "outcome"),
    [
        (200, 0, "success"),
        (200, "0", "success"),
        (200, 13, "failure"),
        (200, 3, "failure"),
        (200, 1, "abandoned"),
        (200, None, "abandoned"),
        (0, "-", "abandoned"),
        (503, None, "failure"),
    ],
)
def test_a_status_of_grpc_is_an_outcome(status, grpc_status, outcome):
    entry = {"status": status, "grpc_status": grpc_status, "model": "m"}
    assert read(path=GRPC_PATH, **entry, version="") == ("m", "", outcome)
    assert read(path=GRPC_PATH, **entry, version="3") == ("m", "3", outcome)


@pytest.mark.parametrize(
    ("path", "model", "version"),
    [
        ("/v2/models/m/versions/2/infer", "m", "2"),
        ("/v2/models/m/generate", "m", ""),
        ("/v2/models/m/generate_stream?a=/v2/models/n/infer", "m", ""),
        ("/v2/models/a%20b/infer", "a b", ""),
    ],
)
def test_a_path_names_model_and_version(path, model, version):
    assert read(path=path, status=200) == (model, version, "success")


@pytest.mark.parametrize(
    "path", ["/v2/health/ready", "/v2/models/m/ready", "/v2/models/m", "", "/infer"]
)
def test_other_requests_are_none(path):
    assert read(path=path, status=200) is None


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"17",
        b"127.0.0.1 - - GET /v2/models/m/infer 200",
        b'{"path":17,"status":200}',
        b'{"path":"/v2/models/m/infer","status":[]}',
        b'{"path":"/v2/models/m/infer","status":"many"}',
        b'{"path":"/v2/models/m/infer","status":20',
        b"[" * 10_000,
        b'\xff\xfe{"path":"',
    ],
)
def test_a_line_of_another_format_is_refused(line):
    with pytest.raises(ForeignJsonError):
        logged_request(line, MOST)


def test_our_own_requests_are_known_by_their_agent():
    line = {"path": "/v2/models/m/infer", "status": 200, "agent": USER_AGENT}
    found = logged_request(json.dumps(line).encode(), MOST)
    assert found is not None
    assert found.own
