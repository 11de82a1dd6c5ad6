"""Routes of the taps that change what is reported want JSON, sent to a name of ours."""

from __future__ import annotations

import json

import pytest
from accesses import access_to
from running_taps import HttpTap

from exporter.features.runs.runs_collector import RunsSettings

RUN = {"run": "r", "kind": "load", "profile": "ramp", "phase": "spike"}
BODY = json.dumps(RUN).encode()
JSON = "application/json"


@pytest.fixture
def served():
    collector = RunsSettings().build(access_to(None))
    tap = HttpTap(collector.routes, hosts=lambda: ("*.example.com",))
    tap.collector = collector  # type: ignore[attr-defined]
    yield tap
    tap.close()


def post(tap, **headers):
    answer, text = tap.send(BODY, "/v1/runs", **headers)
    return answer.status, text.decode()


def runs(tap):
    return [s.labels[0] for s in tap.collector.collect()]


@pytest.mark.parametrize("kind", [JSON, "Application/JSON; charset=utf-8"])
@pytest.mark.parametrize(
    "host",
    [
        "localhost:8004",
        "127.0.0.1:8004",
        "[::1]:8004",
        "10.1.2.3",
        "triton",
        "triton-7.ml.svc.cluster.local:8004",
        "watch.example.com:8004",
        "",
    ],
)
def test_a_run_is_announced_as_json_to_a_name_of_ours(served, kind, host):
    assert post(served, content_type=kind, host=host) == (204, "")
    assert runs(served) == ["r"]
    assert served.outcomes() == {("runs", "accepted"): 1}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content_type": "text/plain"},
        {"content_type": "application/x-www-form-urlencoded"},
        {"content_type": "text/plain; application/json"},
        {"content_type": "application/jsonp"},
    ],
)
def test_what_a_form_of_a_page_can_send_is_refused(served, headers):
    status, text = post(served, **headers)
    assert status == 415
    assert "application/json" in text
    assert runs(served) == []
    assert served.outcomes() == {("runs", "unsupported"): 1}


@pytest.mark.parametrize(
    "host", ["evil.com", "evil.com:8004", "127.0.0.1.nip.io", "example.com.evil.com"]
)
def test_a_name_that_another_site_may_have_pointed_here_is_refused(served, host):
    status, text = post(served, content_type=JSON, host=host)
    assert status == 403
    assert "listen.hosts" in text
    assert runs(served) == []
    assert served.admission.tap.refused["cross_site"] == 1
    assert served.outcomes() == {("runs", "cross_site"): 1}
