"""Lines of access logs become outcomes by model; what is no such line is counted too."""

from __future__ import annotations

import json

import pytest
from accesses import access_to

from exporter import catalogue
from exporter.access.inventory import Inventory
from exporter.errors import PartialResultError, SourceError
from exporter.features.access_log.access_log_collector import AccessLogSettings
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
