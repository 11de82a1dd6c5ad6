"""Clients that ask for /metrics and do not read it."""

from __future__ import annotations

import asyncio

from attacks import unread_scrape
from surfaces import serving
from waiting import patience

from exporter import catalogue
from exporter.network import connections
from exporter.samples import Sample
from exporter.web import scrape_pages
from exporter.web.scrape_pages import MAX_UNREAD_BYTES, Rendered, ScrapePages

LARGE = MAX_UNREAD_BYTES + 1


class Scene:
    def __init__(self, render_seconds=0.0):
        self.now = 0.0
        self.render_seconds = render_seconds
        self.rendered = 0
        self.pages = ScrapePages(clock=lambda: self.now)

    def take(self, kind="text", size=LARGE):
        def render():
            self.rendered += 1
            self.now += self.render_seconds
            return Rendered(b"x" * size, {})

        return self.pages.take(kind, render)


def test_every_scrape_is_rendered_while_little_is_unread():
    scene = Scene()
    assert scene.take(size=1000) is not scene.take(size=1000)
    assert scene.pages.unread_bytes == 2000


def test_scrapes_share_a_page_when_much_is_unread():
    scene = Scene()
    pages = [scene.take() for _ in range(100)]
    assert scene.rendered == 1
    assert scene.pages.unread_bytes == LARGE
    for page in pages:
        scene.pages.give_back(page)
    assert scene.pages.unread_bytes == 0
    scene.take(size=10)
    assert scene.rendered == 2


def test_each_format_has_a_page_of_its_own():
    scene = Scene()
    assert scene.take("text") is scene.take("text")
    assert scene.take("protobuf") is not scene.take("text")
    assert scene.rendered == 2


def test_a_flood_of_scrapes_leaves_most_of_the_time_to_others():
    scene = Scene(render_seconds=0.02)
    for _ in range(1000):
        scene.now += 0.005
        scene.pages.give_back(scene.take(size=1000))
    assert scene.rendered < 25 + 0.11 * scene.now / 0.02
    scene.now += 10
    before = scene.rendered
    for _ in range(20):
        scene.pages.give_back(scene.take(size=1000))
    assert scene.rendered == before + 20, "a few scrapes are rendered each"


def test_no_scrape_gets_a_page_older_than_five_seconds():
    scene = Scene()
    old = scene.take()
    scene.now = 4.9
    assert scene.take() is old
    scene.now = 5.1
    assert scene.take() is not old


def unreading(port):
    client = unread_scrape(("127.0.0.1", port))
    client.setblocking(False)
    return client


async def test_clients_that_do_not_read_hold_one_page_and_are_cut_off(monkeypatch):
    monkeypatch.setattr(connections, "ANSWER_SECONDS", 3.0)
    monkeypatch.setattr(scrape_pages, "MAX_UNREAD_BYTES", 0)
    # More than the kernel buffers for a connection.
    large = [
        Sample(catalogue.MODEL_SERVING, 1, (f"{number}{'m' * 250}", "1"))
        for number in range(40_000)
    ]
    rendered = []
    async with serving() as served:
        samples = served.sidecar.samples

        def counted():
            rendered.append(True)
            return [*samples(), *large]

        monkeypatch.setattr(served.sidecar, "samples", counted)
        clients = [await asyncio.to_thread(unreading, served.port) for _ in range(30)]
        answer = await served.ask("/metrics")
        assert (answer.status, len(answer.body) > 10_000_000) == (200, True)
        # One page while it is fresh; a busy machine may take longer than that.
        assert len(rendered) < 5
        loop = asyncio.get_running_loop()
        await asyncio.sleep(2 * connections.ANSWER_SECONDS)
        for client in clients:
            received = 0
            async with asyncio.timeout(patience()):
                while part := await receive(loop, client):
                    received += len(part)
            assert received < len(answer.body)
            client.close()
        assert (await served.ask("/-/healthy")).status == 200


async def receive(loop, client):
    try:
        return await loop.sock_recv(client, 1 << 16)
    except ConnectionResetError:
        return b""
