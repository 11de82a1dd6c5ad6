"""Which credentials the guard takes, and what it does to answers; by ASGI alone."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import bcrypt
import pytest
import yaml

from exporter.network.admission import Entrance, ParseSlot
from exporter.web.basic_auth import Guard
from exporter.web.web_config import WebConfigFile

if TYPE_CHECKING:
    from pathlib import Path

# bcrypt reads 72 bytes: whatever follows these is taken, if the header may be so long.
PASSWORD = b"p" * 72
HASHED = bcrypt.hashpw(PASSWORD, bcrypt.gensalt(4)).decode()
USERS = {"basic_auth_users": {"user": HASHED}}
INNER = [
    (b"content-type", b"text/plain"),
    (b"X-Frame-Options", b"sameorigin"),
    (b"etag", b"1"),
    (b"vary", b"accept"),
]


def encoded(text: bytes) -> bytes:
    return base64.b64encode(text)


GOOD = encoded(b"user:" + PASSWORD)
LONGEST = encoded(b"user:" + PASSWORD.ljust(768 - len("user:"), b"x"))


async def page(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": INNER})
    await send({"type": "http.response.body", "body": b"page", "more_body": False})


async def answered(
    folder: Path, web: dict[str, Any], *authorization: bytes
) -> list[dict[str, Any]]:
    file = folder / "web.yaml"
    file.write_text(yaml.safe_dump(web))
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    headers = [(b"accept", b"*/*"), *((b"authorization", a) for a in authorization)]
    scope = {"type": "http", "headers": headers, "client": ("127.0.0.1", 1)}
    await Guard(page, WebConfigFile(file), Entrance("web", 8, ParseSlot()))(
        scope, None, send
    )
    return sent


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (b"Basic " + GOOD, 200),
        (b"bAsIc " + GOOD, 200),
        (b"Basic " + LONGEST, 200),
        (b"Basic " + LONGEST + b"xxxx", 401),
        (b"Bearer " + GOOD, 401),
        (GOOD, 401),
        (b"Basic", 401),
        (b"Basic " + GOOD[:-1] + b"!", 401),
        (b"Basic " + encoded(b"user:" + PASSWORD[1:]), 401),
        (b"Basic " + encoded(b"user:" + PASSWORD + b"\0"), 401),
        (b"Basic " + encoded(b"user"), 401),
        (b"Basic " + encoded(b"\xff:" + PASSWORD), 401),
        (b"Basic " + encoded(b"other:" + PASSWORD), 401),
        (b"Basic " + encoded(b":" + PASSWORD), 401),
    ],
)
async def test_only_a_users_own_password_opens_the_page(
    header: bytes, status: int, tmp_path: Path
) -> None:
    assert len(LONGEST) == 1024
    start, body = await answered(tmp_path, USERS, header)
    assert start["status"] == status
    if status == 200:
        assert (start["headers"], body["body"]) == (INNER, b"page")
    else:
        assert start["headers"] == [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", str(len(body["body"])).encode()),
            (b"www-authenticate", b'Basic realm="tritonwatch", charset="UTF-8"'),
        ]


async def test_configured_headers_replace_their_namesakes_and_no_others(
    tmp_path: Path,
) -> None:
    headers = {"X-Frame-Options": "deny", "X-Content-Type-Options": "nosniff"}
    web = {"http_server_config": {"headers": headers}}
    start, body = await answered(tmp_path, web)
    others = [header for header in INNER if header[0] != b"X-Frame-Options"]
    added = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    assert start["headers"] == [*others, *sorted(added)]
    assert body == {
        "type": "http.response.body",
        "body": b"page",
        "more_body": False,
    }
