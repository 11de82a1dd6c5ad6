"""The latest reading of Triton's counters, kept over a restart of this process."""

from __future__ import annotations

import json

import pytest

from exporter.features.statistics.unwatched_gap import UnwatchedGap
from exporter.system.local_server import ServerProcess
from exporter.triton.protocol_types import Duration, ModelStatistics

KEY = ("m", "1")
SERVER = ServerProcess(7, 100)


def reading(success: int, fail: int = 0) -> ModelStatistics:
    return ModelStatistics(
        *KEY, success=Duration(success, 10 * success), fail=Duration(fail, fail)
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "statistics.json"


@pytest.fixture
def kept(path):
    UnwatchedGap(path).save({KEY: reading(10, 2)}, SERVER)
    return path


def test_it_is_told_once(kept) -> None:
    gap = UnwatchedGap(kept)
    assert gap.requests(KEY, reading(50, 5), SERVER) == 43
    assert gap.requests(KEY, reading(50, 5), SERVER) == 0


@pytest.mark.parametrize(
    ("key", "raw", "server", "expected"),
    [
        (KEY, reading(50, 2), None, 40),
        (KEY, reading(10, 2), SERVER, 0),
        (KEY, reading(9, 2), SERVER, 0),
        (KEY, reading(50, 2), ServerProcess(7, 101), 0),
        (("other", "1"), reading(50, 2), SERVER, 0),
    ],
)
def test_only_the_same_server_tells(kept, key, raw, server, expected) -> None:
    assert UnwatchedGap(kept).requests(key, raw, server) == expected


@pytest.mark.parametrize(
    ("saved", "now", "expected"),
    [("a", "a", 40), ("ab", "a", 40), ("a", "b", 0), ("a", "", 40), ("", "b", 40)],
)
def test_a_server_at_an_address_that_its_name_did_not_have_tells_nothing(
    path, saved, now, expected
) -> None:
    UnwatchedGap(path).save({KEY: reading(10)}, None, frozenset(saved))
    found = UnwatchedGap(path).requests(KEY, reading(50), None, frozenset(now))
    assert found == expected


def test_without_a_file_there_is_no_gap(path) -> None:
    assert UnwatchedGap(path).requests(KEY, reading(50), SERVER) == 0


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b'{"version": 2, "server": null, "models": []}',
        b'{"version": 1, "server": [1], "models": []}',
        b'{"version": 1, "server": null, "models": [["m", "1", 5]]}',
        b'{"version": 1, "server": null, "models": [["m", "1", "many", []]]}',
        b'{"version": 1, "server": null, "models": 3}',
    ],
)
def test_a_file_of_something_else_is_set_aside(path, content) -> None:
    path.write_bytes(content)
    gap = UnwatchedGap(path)
    assert gap.requests(KEY, reading(50), SERVER) == 0
    assert not path.exists()
    gap.save({KEY: reading(1)}, None)
    assert json.loads(path.read_text("utf-8"))["models"][0][:3] == ["m", "1", 1]


def test_a_file_that_cannot_be_written_ends_nothing(tmp_path) -> None:
    UnwatchedGap(tmp_path / "missing" / "file").save({KEY: reading(1)}, None)
