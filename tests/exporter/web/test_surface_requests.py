"""Every way to ask the HTTP surface wrongly, and every address it cannot listen on."""

from __future__ import annotations

import socket

import pytest
from surfaces import PAGES, serving
from waiting import patience

from exporter.errors import ListenError
from exporter.network.listening import bind

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
    assert told == {p: (405, f"{p} accepts GET, HEAD\n", "GET, HEAD") for p in paths}


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


# Listening.


@pytest.mark.parametrize(
    "address", ["192.0.2.1", "no.such.host.invalid", "a\0b", "x" * 99, "ü" * 80]
)
def test_what_is_no_address_of_ours_is_one_clear_line(address):
    with pytest.raises(ListenError, match=r"^cannot listen on "):
        bind(address, 0)


def test_an_ipv6_address_that_is_in_use_stands_in_brackets():
    with bind("::1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ListenError) as caught:
            bind("::1", port)
    assert str(caught.value).startswith(f"cannot listen on [::1]:{port}: ")


@pytest.mark.parametrize("address", ["", "::"])
def test_every_address_is_one_of_both_families(address):
    with bind(address, 0) as listener:
        port = listener.getsockname()[1]
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, port), patience()).close()


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "localhost", "0.0.0.0"])
def test_a_free_port_is_taken_on_any_family(address):
    with bind(address, 0) as listener:
        assert listener.getsockname()[1] > 0
