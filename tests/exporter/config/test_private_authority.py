"""Trust in a private authority as `openssl req -x509` makes it, on every Python."""

from __future__ import annotations

import ssl

import pytest
from requirements import require
from tcp_peers import TcpServer
from tls_terminator import Authority

from exporter.config.configuration import parse
from exporter.config.connect import http_client
from exporter.errors import TritonError

LIVE = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


@pytest.fixture
def authority(tmp_path):
    require("openssl")
    return Authority(tmp_path / "own")


@pytest.fixture
def address(authority):
    """A server that shows a certificate of the authority and answers everybody."""
    certificate = authority.sign("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))

    def answer(plain):
        plain.settimeout(10)
        with context.wrap_socket(plain, server_side=True) as connection:
            connection.recv(1 << 16)
            connection.sendall(LIVE)

    with TcpServer(answer) as server:
        yield server.address.replace("127.0.0.1", "localhost")


def asked(address, ca_file):
    target = f"{{grpc: 'localhost:1', http: '{address}', tls: {{ca_file: {ca_file}}}}}"
    client = http_client(parse(f"target: {target}".encode(), "FILE", {}).target)
    try:
        return client.get("/v2/health/live", timeout_seconds=10)
    finally:
        client.close()


def test_a_server_that_a_private_authority_signed_is_trusted(authority, address):
    assert asked(address, authority.file) == b""


def test_one_of_another_authority_is_not(tmp_path, address):
    strange = Authority(tmp_path / "strange")
    with pytest.raises(TritonError, match="certificate is refused"):
        asked(address, strange.file)
