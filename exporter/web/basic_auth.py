"""Basic authentication by bcrypt, before anything is answered."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import secrets
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Any, Final

import bcrypt

from exporter.network.admission import ParseSlot, Turns, network_of
from exporter.network.listening import send_answer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from exporter.network.admission import Entrance
    from exporter.web.web_config import WebConfigFile

    Scope = dict[str, Any]
    Receive = Callable[[], Awaitable[dict[str, Any]]]
    Send = Callable[[dict[str, Any]], Awaitable[None]]

_KEPT: Final = 100
_WAITING: Final = 64
"""Passwords that wait to be checked. Beyond, an address may wait with one."""
_MOST_WAITING: Final = 256
_WAITING_OF_ONE: Final = 8
"""Passwords of one address that wait to be checked, so that others get their turn."""
_LONGEST_PAUSE_SECONDS: Final = 30.0
"""At least as long as a check of cost 17, the highest, takes."""
_LONGEST: Final = 1_024
# Bytes that bcrypt reads; it ignores the rest of a longer password.
_BCRYPT_BYTES: Final = 72


class Guard:
    """An ASGI application that asks for a password before the one within.

    The result is remembered by a keyed digest, since bcrypt is slow on purpose and a
    scrape comes every few seconds; it is forgotten when the user's hash changes.
    """

    def __init__(
        self, application: Callable[..., Any], file: WebConfigFile, entrance: Entrance
    ) -> None:
        self._application = application
        self._file = file
        self._entrance = entrance
        self._key = secrets.token_bytes()
        # Apart, so that no number of wrong ones makes a right one be forgotten.
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._wrong: OrderedDict[bytes, None] = OrderedDict()
        self._turns = Turns()
        # One check at a time, half of the time: the rest of the machine is not theirs.
        self._slot = ParseSlot(
            share=0.5,
            noticed_seconds=0.0,
            longest_pause_seconds=_LONGEST_PAUSE_SECONDS,
        )
        self._waiting: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on authenticated requests."""
        config = self._file.config
        extra = [
            (name.lower().encode(), value.encode("latin-1"))
            for name, value in config.http_server_config.headers.items()
        ]

        async def sending(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                named = {name for name, _ in extra}
                kept = [h for h in message["headers"] if h[0].lower() not in named]
                message = {**message, "headers": [*kept, *extra]}
            await send(message)

        if config.basic_auth_users:
            header = dict(scope["headers"]).get(b"authorization", b"")
            peer = network_of((scope.get("client") or ("",))[0])
            allowed = await self._allowed(config.hashes, header, peer)
            if not allowed:
                await _refuse(sending, busy=allowed is None)
                return
        await self._application(scope, receive, sending)

    async def _allowed(
        self, users: dict[str, str], header: bytes, peer: str
    ) -> bool | None:
        """Return whether the credentials are correct; None: too many wait to be checked."""
        given = _credentials(header)
        if given is None:
            return False
        user, password = given
        # A user who is not there costs what a wrong password of another costs.
        hashed = (users.get(user) or max(users.values(), key=_cost)).encode()
        digest = hashlib.blake2b(
            b"\0".join((hashed, user.encode(), password)), key=self._key
        ).digest()
        for known, right in ((self._right, True), (self._wrong, False)):
            if digest in known:
                known.move_to_end(digest)
                # Another user's hash may be that of one who is no user any more.
                return right and user in users
        if self._waiting[peer] >= self._share():
            self._entrance.refused["passwords"] += 1
            return None
        self._waiting[peer] += 1
        most = max(map(_cost, users.values()))
        try:
            async with self._turns.of(peer):
                right = await asyncio.to_thread(
                    self._slot.run, _matches, password[:_BCRYPT_BYTES], hashed, most
                )
        finally:
            self._waiting[peer] -= 1
            self._waiting += Counter()  # drops what is zero
        right = right and user in users
        known = self._right if right else self._wrong
        known[digest] = None
        while len(known) > _KEPT:
            known.popitem(last=False)
        return right

    def _share(self) -> int:
        """Return how many passwords of one address may wait now."""
        waiting = self._waiting.total()
        if waiting < _WAITING:
            return _WAITING_OF_ONE
        return 1 if waiting < _MOST_WAITING else 0


def _cost(hashed: str) -> int:
    """The logarithm of the work that checking a password takes."""
    return int(hashed[4:6])


def _matches(password: bytes, hashed: bytes, most: int) -> bool:
    """Return whether the password is that of the hash; takes the work of cost `most`.

    A check of cost c is 2^c of work. What is missing to 2^most is done for nothing,
    or the time would show whose hash has a lower cost, and so who is a user.
    """
    right = bcrypt.checkpw(password, hashed)
    for cost in range(_cost(hashed.decode()), most):
        bcrypt.hashpw(password, bcrypt.gensalt(cost))
    return right


def _credentials(header: bytes) -> tuple[str, bytes] | None:
    scheme, _, encoded = header.partition(b" ")
    if scheme.lower() != b"basic" or len(encoded) > _LONGEST:
        return None
    try:
        user, colon, password = base64.b64decode(encoded, validate=True).partition(b":")
        name = user.decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    # bcrypt takes no zero byte.
    return (name, password) if colon and b"\0" not in password else None


async def _refuse(send: Send, *, busy: bool) -> None:
    body = (
        b"too many passwords wait to be checked; try again\n"
        if busy
        else b"this page needs a user and a password\n"
    )
    headers = {"content-type": "text/plain; charset=utf-8"} | (
        {"retry-after": "1"}
        if busy
        else {"www-authenticate": 'Basic realm="tritonwatch", charset="UTF-8"'}
    )
    await send_answer(send, 503 if busy else 401, headers, body)
