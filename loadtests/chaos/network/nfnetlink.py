"""Netfilter's netlink sockets: messages, and the kernel's answers to them.

Formats: linux/netlink.h, linux/netfilter/nfnetlink.h. Numbers within attributes are big
endian, those of headers the machine's own, but for a message's resource.
"""

from __future__ import annotations

import os
import socket
import struct
from typing import TYPE_CHECKING, Final, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

REQUEST: Final = 0x1
ACKNOWLEDGE: Final = 0x4
CREATE: Final = 0x400
APPEND: Final = 0x800
_PROTOCOL: Final = 12
"""NETLINK_NETFILTER of linux/netlink.h; the socket module has no name for it."""
_ERROR: Final = 2
_NESTED: Final = 0x8000
_TYPE_BITS: Final = 0x3FFF
_HEADER: Final = struct.Struct("=IHHII")
_GENERAL: Final = struct.Struct("=BBH")
_ATTRIBUTE: Final = struct.Struct("=HH")
_ERROR_NUMBER: Final = struct.Struct("=i")
_BEGINNING: Final = _HEADER.size + _GENERAL.size
_READ_BYTES: Final = 1 << 16
_ANSWER_SECONDS: Final = 2.0


class Message(NamedTuple):
    """What netfilter is told or tells: `kind` is subsystem << 8 | message."""

    kind: int
    body: bytes = b""
    flags: int = 0
    family: int = 0
    resource: int = 0
    """Which queue, which subsystem: as the subsystem has it."""

    def pack(self, sequence: int = 0) -> bytes:
        """As it goes over the socket."""
        size = _BEGINNING + len(self.body)
        return (
            _HEADER.pack(size, self.kind, REQUEST | self.flags, sequence, 0)
            + _GENERAL.pack(self.family, 0, socket.htons(self.resource))
            + self.body
        )


def attribute(kind: int, *values: bytes) -> bytes:
    """One value; several, or what `attribute` made, are put one after another."""
    body = b"".join(values)
    size = _ATTRIBUTE.size + len(body)
    return _ATTRIBUTE.pack(size, kind) + body + bytes(-size % 4)


def nested(kind: int, *attributes: bytes) -> bytes:
    """Attributes in an attribute."""
    return attribute(kind | _NESTED, *attributes)


def attributes(message: memoryview) -> dict[int, memoryview]:
    """Those of one message, by kind."""
    found = {}
    at = _BEGINNING
    while at + _ATTRIBUTE.size <= len(message):
        size, kind = _ATTRIBUTE.unpack_from(message, at)
        if size < _ATTRIBUTE.size:
            break
        found[kind & _TYPE_BITS] = message[at + _ATTRIBUTE.size : at + size]
        at += size + (-size % 4)
    return found


def messages(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Each message of what was read, with its kind."""
    at = 0
    while at + _HEADER.size <= len(data):
        size, kind, *_ = _HEADER.unpack_from(data, at)
        if size < _HEADER.size:
            break
        yield kind, data[at : at + size]
        at += size + (-size % 4)


def resource(message: memoryview) -> int:
    """Of a message that netfilter sent."""
    _, _, found = _GENERAL.unpack_from(message, _HEADER.size)
    return socket.ntohs(found)


class Netfilter:
    """A socket to the netfilter of the network that this thread is in."""

    def __init__(self) -> None:
        self.socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _PROTOCOL
        )
        self.socket.bind((0, 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, asked: Sequence[Message]) -> None:
        """Tell it these at once, and wait until each with ACKNOWLEDGE is done.

        Raises:
            OSError: one is refused, with the kernel's reason.
        """
        numbered = dict(enumerate(asked, start=1))
        self.socket.send(b"".join(one.pack(n) for n, one in numbered.items()))
        waiting = {n for n, one in numbered.items() if one.flags & ACKNOWLEDGE}
        self.socket.settimeout(_ANSWER_SECONDS)
        while waiting:
            for kind, message in messages(memoryview(self.socket.recv(_READ_BYTES))):
                if kind != _ERROR:
                    continue
                _, _, _, sequence, _ = _HEADER.unpack_from(message)
                (number,) = _ERROR_NUMBER.unpack_from(message, _HEADER.size)
                if number:
                    raise OSError(-number, os.strerror(-number))
                waiting.discard(sequence)
