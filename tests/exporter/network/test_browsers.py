"""What a page of another site has a browser send is refused; monitoring is not."""

from __future__ import annotations

import pytest

from exporter.network.browsers import refusal, sent_by_a_page

CHROME = {"user-agent": "Mozilla/5.0 (X11; Linux x86_64)", "accept-language": "en"}
PROMETHEUS = {"user-agent": "Prometheus/3.5.0"}


@pytest.mark.parametrize(
    "host",
    [
        "localhost:8003",
        "127.0.0.1:8003",
        "[::1]:8003",
        "10.1.2.3",
        "triton",
        "triton-7.ml.svc:8003",
        "triton.ml.svc.cluster.local:8003",
        "watch.example.com",
        "",
    ],
)
def test_a_browser_opens_the_pages_under_a_name_that_is_ours(host) -> None:
    assert refusal("GET", {**CHROME, "host": host}, ("*.example.com",)) is None


@pytest.mark.parametrize(
    "host",
    ["evil.com:8003", "127.0.0.1.nip.io", "x.example.com.evil.com", "local.evil"],
)
def test_a_browser_that_was_rebound_to_us_is_refused(host) -> None:
    found = refusal("GET", {**CHROME, "host": host}, ("*.example.com",))
    assert found is not None
    assert "listen.hosts" in found
    assert refusal("GET", {"accept-language": "en", "host": host}, ()) is not None


def test_a_scrape_may_use_any_name() -> None:
    headers = {**PROMETHEUS, "host": "triton-7.prod.example.com:8003"}
    assert refusal("GET", headers, ()) is None


@pytest.mark.parametrize(
    ("more", "is_refused"),
    [
        ({}, False),
        ({"origin": "http://localhost:8003", "sec-fetch-site": "same-origin"}, False),
        ({"origin": "http://evil.com"}, True),
        ({"origin": "null"}, True),
        ({"origin": "http://localhost:9000", "sec-fetch-site": "same-site"}, True),
        ({"sec-fetch-site": "cross-site"}, True),
    ],
)
def test_a_reload_by_a_page_of_another_site_is_refused(more, is_refused) -> None:
    found = refusal("POST", {"host": "localhost:8003", **more}, ())
    assert (found is not None) == is_refused


def test_a_link_from_another_site_opens_a_page() -> None:
    headers = {**CHROME, "host": "localhost:8003", "sec-fetch-site": "cross-site"}
    assert refusal("GET", headers, ()) is None


def test_taps_know_a_page_by_either_mark() -> None:
    assert sent_by_a_page([(b"origin", b"null")])
    assert sent_by_a_page([(b"host", b"x"), (b"sec-fetch-site", b"cross-site")])
    assert not sent_by_a_page([(b"host", b"x"), (b"content-type", b"text/plain")])
