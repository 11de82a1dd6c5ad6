"""A DNS server on loopback that knows one name, whose address can be changed."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import Final, Self

_HEADER: Final = struct.Struct("!HHHHHH")
_ANSWERED: Final = 0x8400  # a response, with authority
_A: Final = 1
_NAME_OF_THE_QUESTION: Final = 0xC00C


class NameServer:
    """Answers every question for an IPv4 address with `address`, others with nothing."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.asked = 0
        """Questions for an IPv4 address so far."""
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(10)

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                question, client = self._socket.recvfrom(4096)
                if not question:
                    return
                self._socket.sendto(self._answer(question), client)

    def _answer(self, message: bytes) -> bytes:
        (number, *_) = _HEADER.unpack_from(message)
        end = message.index(b"\0", _HEADER.size) + 1
        (kind,) = struct.unpack_from("!H", message, end)
        question = message[_HEADER.size : end + 4]
        answer = b""
        if kind == _A:
            self.asked += 1
            content = socket.inet_aton(self.address)
            answer = struct.pack("!HHHIH", _NAME_OF_THE_QUESTION, _A, 1, 0, 4) + content
        return (
            _HEADER.pack(number, _ANSWERED, 1, bool(answer), 0, 0) + question + answer
        )
