"""A held port is given to nobody but the server that names it."""

import errno
import socket
import struct

import pytest

from exporter.errors import ListenError
from exporter.network.held_port import LOOPBACK, hold_port
from exporter.network.listening import bind

IP_LOCAL_PORT_RANGE = 51


def only(port):
    """A socket to which the kernel may give this port only."""
    asking = socket.socket()
    asking.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        asking.setsockopt(
            socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE, struct.pack("HH", port, port)
        )
    except OSError:
        asking.close()
        pytest.skip("this Linux cannot be told which ports to give: before 6.3")
    return asking


@pytest.fixture
def held():
    with hold_port() as holder:
        yield holder.getsockname()[1]


def test_a_server_listens_on_it_as_often_as_it_starts(held):
    for _ in range(2):
        with (
            bind(LOOPBACK, held) as listener,
            socket.create_connection((LOOPBACK, held)) as client,
        ):
            accepted, _ = listener.accept()
            accepted.close()
            client.recv(1)


def test_who_listens_on_any_port_is_not_given_it(held):
    with only(held) as asking, pytest.raises(OSError) as refused:
        asking.bind((LOOPBACK, 0))
    assert refused.value.errno == errno.EADDRINUSE


def test_who_connects_from_any_port_is_not_given_it(held):
    with (
        bind(LOOPBACK, 0) as listener,
        only(held) as asking,
        pytest.raises(OSError) as refused,
    ):
        asking.connect(listener.getsockname())
    assert refused.value.errno == errno.EADDRNOTAVAIL


def test_once_released_anybody_is_given_it():
    with hold_port() as holder:
        port = holder.getsockname()[1]
    with only(port) as asking:
        asking.bind((LOOPBACK, 0))
        assert asking.getsockname()[1] == port


def test_a_port_on_which_somebody_listens_is_not_held():
    with bind(LOOPBACK, 0) as listener, pytest.raises(OSError) as refused:
        hold_port(listener.getsockname()[1])
    assert refused.value.errno == errno.EADDRINUSE


def test_a_server_is_refused_where_another_listens(held):
    with bind(LOOPBACK, held), pytest.raises(ListenError):
        bind(LOOPBACK, held)
