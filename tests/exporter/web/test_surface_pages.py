"""Every page of the HTTP surface through real sockets."""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import json
import re
import time
from pathlib import Path
from urllib.parse import urlencode, urljoin

import pytest
from fake_triton import HOSTILE_NAMES, INTERNAL, FakeModel, FakeTriton, Hung
from prometheus_client.openmetrics import parser as openmetrics_parser
from surfaces import OPENMETRICS, PAGES, serving
from waiting import patience

from exporter import catalogue
from exporter.samples import ReadTime, Sample

MARKUP_FREE = re.compile(r"<(style|pre|code)>.*?</\1>", re.DOTALL)
BROWSER = "text/html,application/xhtml+xml,*/*;q=0.8"


async def test_head_is_get_without_its_body():
    async with serving() as served:
        await served.until(lambda a: a.status == 200, "/-/ready")
        for path in PAGES:
            get, head = await served.ask(path), await served.ask(path, "HEAD")
            assert get.status == head.status == 200
            assert int(get.headers["content-length"]) == len(get.body) > 0
            assert head.body == b""
            assert head.headers["content-type"] == get.headers["content-type"]
            assert get.headers["x-content-type-options"] == "nosniff"
            assert "server" not in get.headers


def is_counted(answer):
    """The model was probed, and the server's statistics were read."""
    requests = answer.values("triton_requests_total", outcome="success")
    return answer.values("triton_model_serving") == [1] and requests == [0]


async def test_every_runbook_can_be_read_and_nothing_else_of_its_folder():
    runbooks = Path(__file__).parents[3] / "deploy" / "runbooks"
    async with serving() as served:
        for path in runbooks.glob("*.md"):
            # The second is what `tritonwatch rules --runbooks-url SIDECAR/runbooks` writes.
            answer = await served.ask(f"/runbooks/{path.stem}")
            assert (await served.ask(f"/runbooks/{path.name}")).body == answer.body
            assert answer.status == 200
            assert answer.body == path.read_bytes()
            assert answer.headers["content-type"] == "text/plain; charset=utf-8"
            page = await served.ask(f"/runbooks/{path.name}", accept=BROWSER)
            assert page.headers["content-type"] == "text/html; charset=utf-8"
            # Nothing is left of the markup, and each link leads to a page of the sidecar.
            shown = re.sub(MARKUP_FREE, "", page.text)
            assert not re.search(r"`|\]\(|^(#|- |\d\. )", shown, re.MULTILINE), shown
            for link in re.findall('<a href="([^"]*)"', shown):
                assert (await served.ask(urljoin("/runbooks/", link))).status == 200
        for name in ("", "None", "../alertmanager", "TritonDown.txt"):
            assert (await served.ask(f"/runbooks/{name}")).status == 404


@pytest.mark.parametrize(
    ("model", "filled_in"),
    [
        ("org/m-1.5:β", "org/m-1.5:β"),
        ("m<b>[x](y)`", "MODEL"),
        # A shell or Prometheus would run more than the model's name.
        ("m; curl x | sh #", "MODEL"),
        ("$(reboot)", "MODEL"),
        ('m"} or vector(1) #', "MODEL"),
        ("-m", "MODEL"),
        ("m" * 300, "MODEL"),
    ],
)
async def test_a_runbook_is_of_the_model_that_its_address_names(model, filled_in):
    query = urlencode({"model": model})
    async with serving() as served:
        about = f"/runbooks/TritonReadinessLie?{query}"
        page = await served.ask(about, accept=BROWSER)
    assert f"triton_model_serving{{model=&quot;{filled_in}&quot;}}" in page.text
    assert ("MODEL" in page.text) is (filled_in == "MODEL")
    assert f'href="TritonDown?{query}"' in page.text
    assert f'href="../?{query}"' in page.text


async def test_the_pages_are_what_they_say():
    with FakeTriton([FakeModel("m")]) as fake:
        async with serving(fake) as served:
            await served.until(is_counted)
            types = {p: (await served.ask(p)).headers["content-type"] for p in PAGES}
            status = json.loads((await served.ask("/api/v1/status")).text)
            page = (await served.ask("/")).text
    assert types == {
        "/metrics": "text/plain; version=0.0.4; charset=utf-8",
        "/-/healthy": "text/plain; charset=utf-8",
        "/-/ready": "text/plain; charset=utf-8",
        "/": "text/html; charset=utf-8",
        "/api/v1/status": "application/json",
        "/api/v1/history": "application/json",
    }
    assert status["server"]["up"] is True
    [model] = status["models"]
    assert (model["model"], model["serving"], model["state"]) == ("m", True, "SERVING")
    assert status["findings"] == []
    assert {p["outcome"] for p in status["probes"]} == {"ok"}
    assert status["server"]["version"] == "2.51.0"
    [up] = status["series"]["triton_requests_total"][:1]
    assert up["model"] == "m"
    assert "2.51.0" not in page, "what is watched is fetched, the page is the same"


async def test_models_that_do_not_serve_come_first_in_the_status():
    names = ["a", "b-wrong", "c", "d-unloaded", "e"]
    with FakeTriton([FakeModel(name) for name in names]) as fake:
        fake.on("infer", model="b-wrong").reply(INTERNAL)
        fake.unload("d-unloaded", "it failed to load")
        async with serving(fake) as served:
            await served.until(
                lambda a: sorted(a.values("triton_model_serving")) == [0, 1, 1, 1]
            )
            status = json.loads((await served.ask("/api/v1/status")).text)
    order = [m["model"] for m in status["models"]]
    assert order == ["b-wrong", "d-unloaded", "a", "c", "e"]


async def test_metrics_are_one_page_in_three_wrappings():
    with FakeTriton([FakeModel("m")]) as fake:
        async with serving(fake) as served:
            answer = await served.until(is_counted)
            assert answer.values("triton_up") == [1]
            openmetrics = await served.ask("/metrics", **OPENMETRICS)
            packed = await served.ask("/metrics", accept_encoding="gzip")
    names = {
        f.name
        for f in openmetrics_parser.text_string_to_metric_families(openmetrics.text)
    }
    assert "triton_probe_duration_seconds" in names
    assert openmetrics.headers["content-type"].startswith(
        "application/openmetrics-text"
    )
    assert packed.headers["content-encoding"] == "gzip"
    assert b"# TYPE triton_up gauge" in gzip.decompress(packed.body)


async def test_ready_means_that_the_server_was_looked_at_whatever_was_found():
    async with serving(start=False) as served:
        before = await served.ask("/-/ready")
        assert (before.status, before.text) == (
            503,
            "tritonwatch has not looked at its server yet\n",
        )
        assert (await served.ask("/-/healthy")).status == 200
        served.sidecar.start()
        await served.until(lambda a: a.status == 200, "/-/ready")
        assert (await served.ask("/metrics")).values("triton_up") == [0]


async def test_a_server_that_hangs_does_not_slow_the_pages():
    with FakeTriton([FakeModel("m")]) as fake:
        async with serving(fake) as served:
            await served.until(lambda a: a.values("triton_model_serving") == [1])
            fake.on("any").reply(Hung())
            answer = await served.until(lambda a: a.values("triton_up") == [0])
            assert answer.values("tritonwatch_collector_success", collector="server")
            for path in PAGES:
                started = time.monotonic()
                assert (await served.ask(path)).status == 200
                assert time.monotonic() - started < patience(5)


async def test_hostile_model_names_are_text_wherever_they_show():
    models = [FakeModel(name) for name in HOSTILE_NAMES]
    with FakeTriton(models) as fake:
        async with serving(fake) as served:
            count = len(HOSTILE_NAMES)
            answer = await served.until(
                lambda a: len(a.values("triton_model_ready")) == count
            )
            page = (await served.ask("/")).text
            status = json.loads((await served.ask("/api/v1/status")).text)
    for name in HOSTILE_NAMES:
        assert answer.values("triton_model_ready", model=name) == [1]
    assert sorted(m["model"] for m in status["models"]) == sorted(HOSTILE_NAMES)
    assert not any(name in page for name in HOSTILE_NAMES)


@pytest.mark.parametrize("path", ["/", "/runbooks/TritonDown"])
async def test_the_page_runs_nothing_but_its_own_script_and_is_not_kept(path):
    async with serving() as served:
        page = await served.ask(path, accept=BROWSER)
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src '")
    assert "unsafe" not in policy
    for kind, directive in (("script", "script-src"), ("style", "style-src")):
        allowed = re.search(rf"{directive} ([^;]+)", policy)[1].split()
        inline = re.findall(rf"<{kind}>(.*?)</{kind}>", page.text, re.DOTALL)
        digests = [hashlib.sha256(text.encode()).digest() for text in inline]
        known = [f"'sha256-{base64.b64encode(d).decode()}'" for d in digests]
        assert allowed == (known or ["'none'"])
    assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", page.text)
    assert page.headers["cache-control"] == "no-store"


async def test_a_flood_of_the_pages_documents_is_rendered_now_and_then():
    """A document of six hours takes as long as a large scrape."""
    async with serving(start=False) as served:
        history = served.sidecar.status._history
        for step in range(2_000):
            samples = [
                Sample(catalogue.REQUESTS, step * (n + 0.3), (f"m{n}", "1", "success"))
                for n in range(20)
            ]
            read_at = ReadTime(
                catalogue.COLLECTOR_TIMESTAMP, 1e9, ("statistics",), at=10.0 * step
            )
            history.record([read_at, *samples], 10.0 * step)
        began = time.process_time()
        assert (await served.ask("/api/v1/history")).status == 200
        alone_seconds = time.process_time() - began
        began = time.process_time()
        for turn in range(30):
            flood = [
                served.ask(f"/api/v1/history{query}")
                for query in ("", "?model=m1&version=1", f"?model=x{turn}")
                for _ in range(5)
            ]
            assert {a.status for a in await asyncio.gather(*flood)} == {200}
        spent_seconds = time.process_time() - began
        assert spent_seconds < 150 * alone_seconds / 2
