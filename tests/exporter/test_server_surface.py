"""The HTTP surface through real sockets: every route, and every way to ask wrongly."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import hashlib
import json
import re
import socket
import threading
import time
from dataclasses import dataclass

import pytest
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families

from exporter.app import Sidecar
from exporter.config import parse
from exporter.errors import ConfigError, ListenError
from exporter.listening import bind, make_server
from exporter.server import Surface
from exporter.testing import (
    HOSTILE_NAMES,
    INTERNAL,
    FakeModel,
    FakeTriton,
    Filled,
    Hung,
    Slow,
)

OPENMETRICS = {"accept": "application/openmetrics-text"}
CANARY = "canary-value"
PAGES = ["/metrics", "/-/healthy", "/-/ready", "/", "/api/v1/status"]


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self):
        return self.body.decode()

    def values(self, name, **labels):
        return [
            sample.value
            for family in text_string_to_metric_families(self.text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]


@dataclass(frozen=True)
class Served:
    """A sidecar behind its surface on a loopback port."""

    port: int
    sidecar: Sidecar
    fake: FakeTriton | None

    async def raw(self, request):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(request)
            await writer.drain()
            async with asyncio.timeout(30):
                return await reader.read()
        finally:
            writer.close()

    async def ask(self, path, method="GET", body=b"", **headers):
        lines = [f"{method} {path} HTTP/1.1", "host: x", "connection: close"]
        lines += [
            f"{name.replace('_', '-')}: {value}" for name, value in headers.items()
        ]
        lines += [f"content-length: {len(body)}"] if body else []
        head = "\r\n".join([*lines, "", ""]).encode()
        reply = await self.raw(head + body)
        head, _, payload = reply.partition(b"\r\n\r\n")
        status, *fields = head.decode().split("\r\n")
        return Answer(
            int(status.split()[1]),
            {k.lower(): v.strip() for k, _, v in (f.partition(":") for f in fields)},
            payload,
        )

    async def until(self, condition, path="/metrics"):
        for _ in range(400):
            answer = await self.ask(path)
            if condition(answer):
                return answer
            await asyncio.sleep(0.05)
        raise AssertionError(f"it never came about:\n{answer.text}")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def config_of(target, **settings):
    document = {
        "target": target,
        "listen": {"address": "127.0.0.1", "port": 0, "tap": {"port": 0}},
        "collectors": [
            {"kind": "server", "interval_seconds": 0.2},
            {"kind": "statistics", "interval_seconds": 0.2},
        ],
        "probes": [{"kind": "synthetic", "interval_seconds": 0.5}],
        **settings,
    }
    return parse(json.dumps(document).encode(), "FILE", {})


@contextlib.asynccontextmanager
async def serving(fake=None, *, reload=None, start=True, target=None, **settings):
    """A surface over `fake`, or over nobody at all."""
    if target is None:
        nobody = f"127.0.0.1:{free_port()}"
        target = {"grpc": nobody, "http": nobody, "metrics": None}
        if fake is not None:
            target = {"grpc": fake.grpc, "http": fake.http, "metrics": fake.metrics}
    sidecar = Sidecar(config_of(target, **settings))
    server = make_server(Surface(sidecar, reload))
    with bind("127.0.0.1", 0) as listener:
        if start:
            sidecar.start()
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield Served(listener.getsockname()[1], sidecar, fake)
        finally:
            server.should_exit = True
            await task
            await sidecar.stop()


# Pages.


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


async def test_the_pages_are_what_they_say():
    with FakeTriton([FakeModel("m")]) as fake:
        async with serving(fake) as served:
            await served.until(lambda a: a.values("triton_model_serving") == [1])
            types = {p: (await served.ask(p)).headers["content-type"] for p in PAGES}
            status = json.loads((await served.ask("/api/v1/status")).text)
            page = (await served.ask("/")).text
    assert types == {
        "/metrics": "text/plain; version=0.0.4; charset=utf-8",
        "/-/healthy": "text/plain; charset=utf-8",
        "/-/ready": "text/plain; charset=utf-8",
        "/": "text/html; charset=utf-8",
        "/api/v1/status": "application/json",
    }
    assert status["server"]["up"] is True
    assert [(m["model"], m["serving"]) for m in status["models"]] == [("m", True)]
    assert {p["outcome"] for p in status["probes"]} == {"ok"}
    assert status["server"]["version"] == "2.51.0"
    [up] = status["series"]["triton_requests_total"][:1]
    assert up["model"] == "m"
    assert "2.51.0" not in page, "what is watched is fetched, the page is the same"


async def test_metrics_are_one_page_in_three_wrappings():
    with FakeTriton([FakeModel("m")]) as fake:
        async with serving(fake) as served:
            answer = await served.until(
                lambda a: a.values("triton_model_serving") == [1]
            )
            assert answer.values("triton_up") == [1]
            assert answer.values("triton_requests_total", outcome="success") == [0]
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
                assert time.monotonic() - started < 5


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


async def test_the_page_runs_nothing_but_its_own_script_and_is_not_kept():
    async with serving() as served:
        page = await served.ask("/")
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    for kind, directive in (("script", "script-src"), ("style", "style-src")):
        allowed = re.search(rf"{directive} ([^;]+)", policy)[1].split()
        inline = re.findall(rf"<{kind}>(.*?)</{kind}>", page.text, re.DOTALL)
        digests = [hashlib.sha256(text.encode()).digest() for text in inline]
        assert [f"'sha256-{base64.b64encode(d).decode()}'" for d in digests] == allowed
    assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", page.text)
    assert page.headers["cache-control"] == "no-store"


async def test_secrets_are_on_no_page():
    with FakeTriton([FakeModel("m")]) as fake:
        target = {
            "grpc": fake.grpc,
            "http": fake.http,
            "metrics": fake.metrics,
            "headers": {"Authorization": CANARY},
        }
        allow = {"allow": ["127.0.0.1:*"]}
        async with serving(fake, target=target, multi_target=allow) as served:
            await served.until(lambda a: a.values("triton_model_serving") == [1])
            paths = [*PAGES, f"/probe?target={fake.grpc}&debug=true"]
            pages = [await served.ask(path) for path in paths]
            asked = fake.requests
    assert not any(CANARY in page.text for page in pages)
    # Sent to the server it is for, and to no other target.
    assert any(r.headers.get("authorization") == CANARY for r in asked)


# Wrong paths and methods.


async def test_what_is_not_there_is_404():
    paths = ["/nothing", "/metrics/", "//metrics", "/-/", "/%2e%2e/etc", "/metrics%00"]
    async with serving(start=False) as served:
        answers = [await served.ask(path) for path in paths]
    assert [a.status for a in answers] == [404] * len(paths)
    assert all(a.text.startswith("no such page: /") for a in answers)
    assert {a.headers["content-type"] for a in answers} == {"text/plain; charset=utf-8"}


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
async def test_a_page_is_only_read(method):
    paths = [*PAGES, "/probe"]
    async with serving(start=False) as served:
        answers = {path: await served.ask(path, method) for path in paths}
    told = {path: (a.status, a.text, a.headers["allow"]) for path, a in answers.items()}
    assert told == {p: (405, f"{p} takes GET, HEAD\n", "GET, HEAD") for p in paths}


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE"])
async def test_reload_is_only_posted(method):
    async with serving(start=False, reload=lambda: None) as served:
        answer = await served.ask("/-/reload", method)
    assert (answer.status, answer.headers["allow"]) == (405, "POST")


QUERIES = {
    "a=1&" * 99 + "a=1": 200,
    "a=1&" * 101: 400,
    "&" * 5000: 400,
    "=": 200,
    "%zz=%ff%fe&%00=%0d%0a": 200,
    "\xff\xfe": 400,
    "a=" + "x" * 8000: 200,
    "a[]=1;b=2#c": 200,
}


async def test_no_query_breaks_a_page():
    found = {}
    async with serving() as served:
        for query in QUERIES:
            line = (
                f"GET /metrics?{query} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
            )
            reply = await served.raw(line.encode("latin-1"))
            found[query] = int(reply.split()[1])
            assert (await served.ask("/-/healthy")).status == 200
    assert found == QUERIES


async def test_a_body_nobody_asked_for_is_let_go():
    async with serving() as served:
        for method, path in (("GET", "/metrics"), ("POST", "/-/reload")):
            answer = await served.ask(path, method, body=b"x" * 10_000)
            assert answer.status in {200, 403}
        assert (await served.ask("/-/healthy")).status == 200


# Reload.


async def test_reload_is_off_unless_asked_for():
    async with serving(start=False) as served:
        answer = await served.ask("/-/reload", "POST")
    assert (answer.status, answer.text) == (
        403,
        "reload over HTTP is off; start with --web.enable-lifecycle\n",
    )


async def test_reload_says_what_came_of_it():
    results = [None, "FILE: listen.port: found -1; want at least 0"]
    async with serving(start=False, reload=lambda: results.pop(0)) as served:
        good, bad = [await served.ask("/-/reload", "POST") for _ in range(2)]
    assert (good.status, good.text) == (200, "reloaded\n")
    assert (bad.status, bad.text) == (
        500,
        "FILE: listen.port: found -1; want at least 0\n",
    )


async def test_a_reload_takes_over_a_new_server_and_a_failed_one_nothing():
    with FakeTriton([FakeModel("old")]) as old, FakeTriton([FakeModel("new")]) as new:
        async with serving(old) as served:
            await served.until(lambda a: a.values("triton_model_ready", model="old"))
            served.sidecar.reload_failed()
            answer = await served.ask("/metrics")
            assert answer.values("tritonwatch_config_last_reload_successful") == [0]
            assert answer.values("triton_model_ready", model="old") == [1]
            target = {"grpc": new.grpc, "http": new.http, "metrics": new.metrics}
            served.sidecar.reload(config_of(target))
            answer = await served.until(
                lambda a: a.values("triton_model_ready", model="new")
            )
            assert answer.values("triton_model_ready", model="old") == []
            assert answer.values("tritonwatch_config_last_reload_successful") == [1]


async def test_a_reload_whose_files_cannot_be_read_leaves_the_old_server():
    with FakeTriton([FakeModel("m")]) as fake:
        async with serving(fake) as served:
            await served.until(lambda a: a.values("triton_model_serving") == [1])
            target = {
                "grpc": fake.grpc,
                "http": fake.http,
                "tls": {"ca_file": "no.pem"},
            }
            with pytest.raises(ConfigError):
                served.sidecar.reload(config_of(target))
            await asyncio.sleep(1)
            assert (await served.ask("/metrics")).values("triton_model_serving") == [1]


# /probe.

ALLOWED = {"allow": ["127.0.0.1:*", "[::1]:1"], "max_concurrent": 2}


async def test_a_target_on_the_list_is_looked_at():
    with FakeTriton([FakeModel("m")]) as fake:
        async with serving(multi_target=ALLOWED) as served:
            answer = await served.ask(f"/probe?target={fake.grpc}&http={fake.http}")
    assert answer.status == 200
    assert answer.values("probe_success") == [1]
    assert answer.values("triton_probe_success", protocol="grpc", model="m") == [1]
    assert answer.values("triton_probe_success", protocol="http", model="m") == [1]
    assert answer.values("probe_duration_seconds")[0] > 0
    assert {r.protocol for r in fake.requests if r.operation == "infer"} == {
        "grpc",
        "http",
    }
    assert not any("authorization" in r.headers for r in fake.requests)


async def test_debug_shows_the_log_the_samples_and_the_settings():
    with FakeTriton([FakeModel("m")]) as fake:
        fake.on("infer").reply(Filled(0))
        probes = [{"kind": "synthetic", "name": "strict", "checks": ["all_zero"]}]
        async with serving(multi_target=ALLOWED, probes=probes) as served:
            path = f"/probe?target={fake.grpc}&module=strict&debug=true"
            answer = await served.ask(path)
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain")
    assert f"server {fake.grpc}: up, 1 ready models" in answer.text
    assert "model m version 1 over grpc: bad_output" in answer.text
    assert "probe_success 0.0" in answer.text
    assert '"all_zero"' in answer.text


async def test_a_target_that_is_away_is_no_success():
    async with serving(multi_target=ALLOWED) as served:
        answer = await served.ask(f"/probe?target=127.0.0.1:{free_port()}")
    assert answer.status == 200
    assert answer.values("probe_success") == answer.values("triton_up") == [0]


@pytest.mark.parametrize("operation", ["server_ready", "repository_index"])
async def test_a_target_that_answers_and_does_not_tell_its_models_is_no_success(
    operation,
):
    with FakeTriton([FakeModel("m")]) as fake:
        fake.on(operation).reply(INTERNAL)
        async with serving(start=False, multi_target=ALLOWED) as served:
            answer = await served.ask(f"/probe?target={fake.grpc}")
            told = await served.ask(f"/probe?target={fake.grpc}&debug=true")
    assert (answer.status, answer.values("probe_success")) == (200, [0])
    assert answer.values("triton_up") == [1]
    assert "INTERNAL" in told.text


REFUSED = [
    ("", 400, "found target=''; want \"host:port\""),
    ("target=", 400, "found target=''"),
    ("target=localhost", 400, "found target='localhost'"),
    ("target=http://127.0.0.1:1", 400, 'want "host:port", like triton-0:8001'),
    ("target=127.0.0.1:0", 400, "found target='127.0.0.1:0'"),
    ("target=127.0.0.1:1%0a", 400, "found target='127.0.0.1:1\\n'"),
    ("target=evil%23127.0.0.1:1", 400, "found target='evil#127.0.0.1:1'"),
    ("target=x@127.0.0.1:1", 400, "found target='x@127.0.0.1:1'"),
    ("target=%ff:1", 400, "found target='\ufffd:1'"),
    ("target=10.0.0.1:8001", 403, "which multi_target.allow does not name"),
    ("target=[::1]:2", 403, "which multi_target.allow does not name"),
    ("target=127.0.0.1:1&http=10.0.0.1:1", 403, "found http='10.0.0.1:1'"),
    ("target=127.0.0.1:1&http=no", 400, "found http='no'"),
    ("target=127.0.0.1:1&target=10.0.0.1:1", 403, "found target='10.0.0.1:1'"),
    ("target=127.0.0.1:1&module=no", 400, "configured probes are synthetic"),
]


async def test_a_probe_that_is_not_carried_out_says_why():
    async with serving(start=False, multi_target=ALLOWED) as served:
        for query, status, told in REFUSED:
            answer = await served.ask(f"/probe?{query}")
            assert (query, answer.status) == (query, status)
            assert told in answer.text
            assert answer.text.count("\n") == 1


async def test_nothing_is_probed_where_nothing_is_allowed():
    async with serving(start=False) as served:
        assert (await served.ask("/probe?target=127.0.0.1:8001")).status == 403


async def test_an_open_list_allows_any_address():
    settings = {"open": True}
    async with serving(start=False, multi_target=settings) as served:
        answer = await served.ask(f"/probe?target=127.0.0.1:{free_port()}")
    assert (answer.status, answer.values("probe_success")) == (200, [0])


async def test_an_ipv6_address_can_be_allowed_as_it_is_written():
    async with serving(start=False, multi_target=ALLOWED) as served:
        answer = await served.ask("/probe?target=[::1]:1")
    assert (answer.status, answer.values("probe_success")) == (200, [0])


async def test_without_any_probe_there_is_no_module():
    async with serving(start=False, multi_target=ALLOWED, probes=[]) as served:
        answer = await served.ask("/probe?target=127.0.0.1:1")
    assert (answer.status, "configured probes are none" in answer.text) == (400, True)


async def test_more_probes_at_once_than_allowed_are_refused_and_others_go_on():
    with FakeTriton([FakeModel("m")]) as fake:
        fake.on("infer").reply(Slow(1.5))
        async with serving(start=False, multi_target=ALLOWED) as served:
            path = f"/probe?target={fake.grpc}"
            under_way = [asyncio.create_task(served.ask(path)) for _ in range(2)]
            await asyncio.to_thread(fake.wait_for, "infer", count=2)
            refused = await served.ask(path)
            assert (await served.ask("/-/healthy")).status == 200
            assert [answer.status for answer in await asyncio.gather(*under_way)] == [
                200
            ] * 2
            assert (await served.ask(path)).status == 200
    assert refused.status == 503
    assert "multi_target.max_concurrent allows no more" in refused.text


@pytest.mark.parametrize("seconds", ["1", "0.5", "1e-9"])
async def test_a_hung_target_is_answered_within_the_scrapes_own_timeout(seconds):
    header = {"x_prometheus_scrape_timeout_seconds": seconds}
    with FakeTriton([FakeModel("m")]) as fake:
        fake.on("infer").reply(Hung())
        async with serving(start=False, multi_target=ALLOWED) as served:
            started = time.monotonic()
            answer = await served.ask(f"/probe?target={fake.grpc}", **header)
            assert time.monotonic() - started < 8
    assert (answer.status, answer.values("probe_success")) == (200, [0])


@pytest.mark.parametrize("seconds", ["x", "-1", "0", "nan", "inf", "", "9" * 400])
async def test_a_scrape_timeout_that_is_none_is_not_used(seconds):
    header = {"x_prometheus_scrape_timeout_seconds": seconds}
    with FakeTriton([FakeModel("m")]) as fake:
        async with serving(start=False, multi_target=ALLOWED) as served:
            answer = await served.ask(f"/probe?target={fake.grpc}", **header)
    assert answer.values("probe_success") == [1]


async def test_no_probe_under_way_holds_the_process_at_its_end():
    with FakeTriton([FakeModel("m")]) as fake:
        fake.on("any").reply(Hung())
        async with serving(start=False, multi_target=ALLOWED) as served:
            task = asyncio.create_task(served.ask(f"/probe?target={fake.grpc}"))
            await asyncio.to_thread(fake.wait_for, "server_live")
            asking = [t for t in threading.enumerate() if "multi-target" in t.name]
            assert asking
            assert all(thread.daemon for thread in asking)
            task.cancel()
            await asyncio.wait({task})


# Listening.


def test_an_address_in_use_is_one_clear_line():
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ListenError) as caught:
            bind("127.0.0.1", port)
    assert str(caught.value) == (
        f"cannot listen on 127.0.0.1:{port}: Address already in use; "
        "choose another address under `listen` in the config"
    )


@pytest.mark.parametrize(
    "address", ["192.0.2.1", "no.such.host.invalid", "a\0b", "x" * 99, "ü" * 80]
)
def test_what_is_no_address_of_ours_is_one_clear_line(address):
    with pytest.raises(ListenError, match=r"^cannot listen on "):
        bind(address, 0)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "localhost", "0.0.0.0"])
def test_a_free_port_is_taken_on_any_family(address):
    with bind(address, 0) as listener:
        assert listener.getsockname()[1] > 0
