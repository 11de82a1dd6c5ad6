"""Lines of access logs become outcomes by model; what is no such line is counted too."""

from __future__ import annotations

import json

import pytest
from accesses import access_to

from exporter import catalogue
from exporter.access.inventory import Inventory
from exporter.errors import PartialResultError, SourceError
from exporter.features.access_log.access_log_collector import (
    GRPC_PATH,
    AccessLogSettings,
    LoggedRequest,
    logged_request,
)
from exporter.taps.foreign_json import ForeignJsonError
from exporter.triton import USER_AGENT

MODELS = Inventory(models=dict.fromkeys([("m", "1")]))


@pytest.fixture
def log(tmp_path):
    found = tmp_path / "requests.log"
    found.write_bytes(b"")
    return found


@pytest.fixture
def access():
    found = access_to(None)
    found.board.publish(MODELS)
    return found


@pytest.fixture
def collecting(access, log):
    collector = AccessLogSettings(paths=(log,)).build(access)
    collector.collect()
    yield collector
    collector.close()


def write(log, *entries):
    with log.open("a") as file:
        for entry in entries:
            file.write(json.dumps(entry) + "\n")


def request(status, model="m", agent="curl/7"):
    return {"path": f"/v2/models/{model}/infer", "status": status, "agent": agent}


def counted(samples, spec):
    return {s.labels: s.value for s in samples if s.spec is spec and s.value}


def test_a_log_of_a_foreign_format_is_a_failure_beside_another_and_after_a_reload(
    access, log, tmp_path
):
    other = tmp_path / "other.log"
    collector = AccessLogSettings(paths=(other, log)).build(access)
    other.write_bytes(b"")
    collector.collect()
    for number in (1, 2):
        write(other, request(502))
        write(log, '1.2.3.4 - - "POST /v2/models/m/infer HTTP/1.1" 502 0')
        with pytest.raises(PartialResultError, match=f"{log}: no recent line") as found:
            collector.collect()
        with pytest.raises(PartialResultError):
            collector.collect()
        lines = counted(found.value.samples, catalogue.ACCESS_LOG_LINES)
        assert lines == {("malformed",): number, ("counted",): 2 * number - 1}
        write(log, request(502))
        assert counted(collector.collect(), catalogue.CLIENT_REQUESTS)
    collector.close()


def test_each_line_is_counted_once_by_what_it_is(collecting, log):
    write(log, *[request(200)] * 3, *[request(500)] * 2, request(499))
    write(log, request(200, agent=USER_AGENT), request(500, model="stranger"))
    write(log, {"path": "/v2/health/ready", "status": 200}, "what is this")
    for _ in range(2):
        samples = collecting.collect()
        assert counted(samples, catalogue.CLIENT_REQUESTS) == {
            ("m", "1", "success", "access_log"): 3,
            ("m", "1", "failure", "access_log"): 2,
            ("m", "1", "abandoned", "access_log"): 1,
        }
        assert counted(samples, catalogue.ACCESS_LOG_LINES) == {
            ("counted",): 6,
            ("own",): 1,
            ("unknown_model",): 1,
            ("other",): 1,
            ("malformed",): 1,
        }


def test_lines_wait_until_the_models_are_known(log):
    access = access_to(None)
    collector = AccessLogSettings(paths=(log,)).build(access)
    collector.collect()
    write(log, request(500))
    collector.collect()
    access.board.publish(MODELS)
    found = counted(collector.collect(), catalogue.CLIENT_REQUESTS)
    assert found == {("m", "1", "failure", "access_log"): 1}
    collector.close()


def test_a_log_that_cannot_be_read_costs_no_other_its_lines(access, log, tmp_path):
    missing = tmp_path / "missing.log"
    collector = AccessLogSettings(paths=(missing, log)).build(access)
    for lines in range(2):
        with pytest.raises(PartialResultError, match=r"missing\.log cannot be read"):
            collector.collect()
        write(log, *[request(500)] * (1 - lines))
    with pytest.raises(PartialResultError) as raised:
        collector.collect()
    found = counted(raised.value.samples, catalogue.CLIENT_REQUESTS)
    assert found == {("m", "1", "failure", "access_log"): 1}
    collector.close()


def test_without_any_log_nothing_is_said(access, tmp_path):
    collector = AccessLogSettings(paths=(tmp_path / "missing.log",)).build(access)
    with pytest.raises(SourceError):
        collector.collect()


def test_what_the_deadline_leaves_is_read_in_later_runs(access, log):
    collector = AccessLogSettings(paths=(log,), deadline_seconds=0.2).build(access)
    collector.collect()
    # Every line another: none of them is parsed for two.
    write(log, *(request(500, agent=f"hostile {n}") for n in range(60_000)))
    found = runs = 0
    while found < 60_000:
        runs += 1
        assert runs < 1000
        values = counted(collector.collect(), catalogue.CLIENT_REQUESTS)
        found = sum(values.values())
    assert runs > 1
    assert found == 60_000
    collector.close()


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


def test_a_line_with_bytes_that_are_no_text_counts():
    """nginx writes those of a header as they are."""
    line = b'{"path":"/v2/models/m/infer","status":502,"agent":"caf\xe9"}'
    assert logged_request(line, MOST) == LoggedRequest("m", "", "failure", own=False)


@pytest.mark.parametrize(
    "path",
    [
        *("/v2/health/ready", "/v2/models/m/ready", "/v2/models/m", "", "/infer"),
        "/v1/chat/completions",
    ],
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
        b'{"request":"POST /v2/models/m/infer HTTP/1.1","status":200}',
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
