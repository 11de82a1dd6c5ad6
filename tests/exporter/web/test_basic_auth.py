"""Which credentials the guard takes, and what it does to answers; by ASGI alone."""

from __future__ import annotations

import asyncio
import base64
import statistics
import time
from typing import TYPE_CHECKING, Any

import bcrypt
import pytest
import yaml

from exporter.network.admission import Admission, Turns
from exporter.web import basic_auth, web_config
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


def guard(folder: Path, web: dict[str, Any]) -> Guard:
    file = folder / "web.yaml"
    file.write_text(yaml.safe_dump(web))
    return Guard(page, WebConfigFile(file), Admission().web)


async def answered(
    folder: Path, web: dict[str, Any], *authorization: bytes
) -> list[dict[str, Any]]:
    return await asked(guard(folder, web), "127.0.0.1", *authorization)


async def asked(
    application: Guard, address: str, *authorization: bytes
) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    headers = [(b"accept", b"*/*"), *((b"authorization", a) for a in authorization)]
    scope = {"type": "http", "headers": headers, "client": (address, 1)}
    await application(scope, None, send)
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
        (b"Basic !" + GOOD, 401),
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
            (b"content-length", str(len(body["body"])).encode()),
            (b"content-type", b"text/plain; charset=utf-8"),
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


def guesses(application: Guard, address: str, number: int) -> list[asyncio.Task[Any]]:
    """Send wrong passwords from one address, all at once."""
    headers = [
        b"Basic " + encoded(f"user:{address}-{n}".encode()) for n in range(number)
    ]
    return [
        asyncio.create_task(asked(application, address, header)) for header in headers
    ]


def users(cost: int) -> dict[str, Any]:
    hashed = bcrypt.hashpw(PASSWORD, bcrypt.gensalt(cost)).decode()
    return {"basic_auth_users": {"user": hashed}}


@pytest.mark.parametrize(("cost", "rounds"), [(5, 20), (10, 2)])
async def test_a_flood_of_wrong_passwords_takes_half_of_one_core(
    tmp_path: Path, cost: int, rounds: int
) -> None:
    application = guard(tmp_path, users(cost))
    wall, cpu = time.monotonic(), time.process_time()
    for each in range(rounds):
        flood = guesses(application, f"10.0.0.{each}", 8)
        answers = await asyncio.gather(*flood)
        assert {start["status"] for start, _ in answers} == {401}
    share = (time.process_time() - cpu) / (time.monotonic() - wall)
    assert share < 0.7


async def test_passwords_of_many_addresses_keep_no_other_address_out(
    tmp_path: Path,
) -> None:
    """The next password is that of the address that has waited longest for its turn."""
    application = guard(tmp_path, users(8))
    flood = [
        guess for n in range(12) for guess in guesses(application, f"10.0.0.{n}", 10)
    ]
    await asyncio.sleep(0)
    start, _ = await asked(application, "10.0.1.1", b"Basic " + GOOD)
    assert start["status"] == 200
    assert sum(not guess.done() for guess in flood) > 40, "others still wait"
    await asyncio.gather(*flood)


@pytest.mark.parametrize(
    ("addresses", "each", "waiting"),
    # Eight of each address until 64 wait, then one of each, until 256 do.
    [(12, 10, 64 + 4), (300, 1, 256), (1, 9, 8)],
)
async def test_so_many_passwords_wait_and_the_others_are_refused(
    addresses: int, each: int, waiting: int, tmp_path: Path
) -> None:
    application = guard(tmp_path, users(8))
    flood = [g for n in range(addresses) for g in guesses(application, str(n), each)]
    await asyncio.sleep(0)
    refused = [guess for guess in flood if guess.done()]
    assert len(flood) - len(refused) == waiting
    assert application._entrance.refused == {"passwords": len(refused)}
    for guess in flood:
        guess.cancel()
    await asyncio.gather(*flood, return_exceptions=True)
    assert not application._waiting
    assert {guess.result()[0]["status"] for guess in refused} == {503}
    assert (b"retry-after", b"1") in refused[0].result()[0]["headers"]


async def test_a_password_that_was_checked_lately_waits_for_no_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(basic_auth, "_KEPT", 2)
    application = guard(tmp_path, users(8))
    wrong = [encoded(f"user:{n}".encode()) for n in range(4)]

    async def statuses(*given: bytes) -> list[int]:
        answers = [await asked(application, "a", b"Basic " + each) for each in given]
        return [start["status"] for start, _ in answers]

    # Two wrong ones are remembered: the two that were used last.
    assert await statuses(GOOD, wrong[0], wrong[1], wrong[0], wrong[2]) == [
        *(200, 401, 401, 401, 401)
    ]
    flood = guesses(application, "a", 8)
    await asyncio.sleep(0)
    assert await statuses(GOOD, *wrong) == [200, 401, 503, 401, 503]
    await asyncio.gather(*flood)


async def test_a_user_who_was_removed_is_refused_though_the_hash_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_config, "CHECK_SECONDS", 0.0)
    application = guard(tmp_path, USERS)
    assert (await asked(application, "a", b"Basic " + GOOD))[0]["status"] == 200
    renamed = yaml.safe_dump({"basic_auth_users": {"other": HASHED}})
    (tmp_path / "web.yaml").write_text(renamed)
    assert (await asked(application, "a", b"Basic " + GOOD))[0]["status"] == 401


async def test_a_turn_is_passed_on_once_whenever_a_client_gives_up() -> None:
    turns = Turns()
    taken = []

    async def take(number: int) -> None:
        async with turns.of("a"):
            taken.append(number)

    async with turns.of("a"):
        waiting = [asyncio.create_task(take(number)) for number in range(4)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.wait(waiting[:1])
        assert taken == []
    waiting[1].cancel()  # it has its turn, and has not used it yet
    async with asyncio.timeout(10):
        await asyncio.gather(*waiting, return_exceptions=True)
    assert taken == [2, 3]


async def test_an_unknown_user_takes_as_long_as_a_known_one(tmp_path: Path) -> None:
    cheap, dear = (bcrypt.hashpw(PASSWORD, bcrypt.gensalt(n)).decode() for n in (6, 9))
    web = {"basic_auth_users": {"cheap": cheap, "dear": dear}}
    application = guard(tmp_path, web)

    async def seconds(user: str, number: int) -> float:
        header = b"Basic " + encoded(f"{user}:wrong-{number}".encode())
        before = time.process_time()
        start, _ = await asked(application, "127.0.0.1", header)
        assert start["status"] == 401
        return time.process_time() - before

    medians = {
        user: statistics.median([await seconds(user, number) for number in range(15)])
        for user in ("cheap", "dear", "nobody")
    }
    assert 0.7 < medians["nobody"] / medians["dear"] < 1.4
    assert 0.7 < medians["cheap"] / medians["dear"] < 1.4


async def test_turns_that_are_no_longer_awaited_are_forgotten() -> None:
    turns = Turns()

    async def take() -> None:
        async with turns.of("a"):
            pass

    async with turns.of("b"):
        waiting = [asyncio.create_task(take()) for _ in range(100)]
        await asyncio.sleep(0)
        for each in waiting[:99]:
            each.cancel()
        await asyncio.wait(waiting[:99])
        assert [len(held) for held in turns._waiting.values()] == [1]
        waiting[99].cancel()
        await asyncio.wait(waiting)
        assert not turns._waiting
