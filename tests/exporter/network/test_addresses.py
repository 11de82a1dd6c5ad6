"""Spellings of one server's address, and addresses of two servers."""

from __future__ import annotations

import socket

import pytest

from exporter.network.addresses import host_port, same_server


@pytest.mark.parametrize(
    "other",
    [
        "localhost:8001",
        "127.0.0.1:8001",
        "127.0.0.2:8001",
        "[::1]:8001",
        "0.0.0.0:8001",
        "[::ffff:127.0.0.1]:8001",
        f"{socket.gethostname()}:8001",
    ],
)
def test_spellings_of_this_host_are_one_server(other):
    assert same_server("127.0.0.1:8001", other)
    assert same_server(other, "localhost:8001")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("127.0.0.1:8001", "127.0.0.1:9001"),
        ("192.0.2.1:8001", "192.0.2.2:8001"),
        ("127.0.0.1:8001", "192.0.2.1:8001"),
        ("no-such-host.invalid:8001", "another.invalid:8001"),
    ],
)
def test_other_servers_are_others(one, other):
    assert not same_server(one, other)


def test_an_address_that_does_not_resolve_equals_itself():
    assert same_server("no-such-host.invalid:8001", "NO-SUCH-HOST.invalid:8001")
    assert same_server("192.0.2.1:8001", "192.0.2.1:8001")


@pytest.mark.parametrize(
    ("host", "wanted"),
    [
        ("::1", "[::1]:80"),
        ("fe80::1%eth0", "[fe80::1%eth0]:80"),
        ("127.0.0.1", "127.0.0.1:80"),
        ("host", "host:80"),
    ],
)
def test_a_host_and_its_port_are_one_text_that_can_be_split_again(host, wanted):
    assert host_port(host, 80) == wanted
