"""Every line that is appended is read once, whatever happens to the file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from clocks import Clock

from exporter.errors import SourceError
from exporter.system import followed_lines
from exporter.system.followed_lines import LineFollower

MOST = 1 << 30


@pytest.fixture
def clock():
    return Clock(100.0)


@pytest.fixture
def log(tmp_path):
    return tmp_path / "requests.log"


@pytest.fixture
def follower(log, clock):
    found = LineFollower(log, clock)
    yield found
    found.close()


def write(path, text):
    with path.open("ab") as file:
        file.write(text)


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


def lines(follower, most=MOST):
    return [line for chunk in follower.poll(1e9, most) for line in chunk]


def test_lines_written_before_the_first_poll_are_not_read(log, follower):
    write(log, b"old\n")
    assert lines(follower) == []
    write(log, b"one\ntwo\n")
    assert lines(follower) == [b"one", b"two"]
    assert lines(follower) == []


def test_a_line_is_read_when_its_end_is_written(log, follower):
    write(log, b"old, and half of a li")
    assert lines(follower) == []
    write(log, b"ne\nsec")
    assert lines(follower) == []
    write(log, b"ond\nthird\n")
    assert lines(follower) == [b"second", b"third"]


def test_a_log_that_comes_later_is_read_from_its_beginning(log, follower):
    with pytest.raises(SourceError, match="No such file"):
        lines(follower)
    write(log, b"one\n")
    assert lines(follower) == [b"one"]


def test_a_pipe_is_refused_at_once(log, follower):
    os.mkfifo(log)
    with pytest.raises(SourceError, match="is not a file"):
        lines(follower)


def test_a_rotated_log_is_read_until_its_writer_has_left_it(log, follower, clock):
    write(log, b"")
    lines(follower)
    rotated = log.with_suffix(".1")
    write(log, b"one\n")
    log.rename(rotated)
    write(rotated, b"two\n")
    assert lines(follower) == [b"one", b"two"]
    # logrotate makes the new file before the writer opens it.
    write(log, b"")
    write(rotated, b"three\n")
    assert lines(follower) == [b"three"]
    write(rotated, b"four\n")
    write(log, b"five\n")
    assert lines(follower) == [b"four", b"five"]
    clock.now += followed_lines.LINGER_SECONDS + 1
    before = open_files()
    assert lines(follower) == []
    assert open_files() == before - 1


def test_no_more_files_stay_open_than_it_says(log, follower):
    write(log, b"")
    before = open_files()
    for number in range(20):
        lines(follower)
        log.rename(log.with_suffix(f".{number}"))
        write(log, b"x\n")
        assert lines(follower) == [b"x"]
    held = open_files() - before
    assert held == followed_lines.MAX_ROTATED + 1


def test_a_truncated_log_is_read_from_its_beginning_and_counted(log, follower):
    write(log, b"old\n")
    lines(follower)
    write(log, b"one\n")
    lines(follower)
    os.truncate(log, 0)
    write(log, b"two\n")
    assert lines(follower) == [b"two"]
    assert follower.counts.truncated == 1


def test_a_line_that_is_too_long_costs_no_other_line_and_no_memory(log, follower):
    write(log, b"")
    lines(follower)
    long = b"x" * (3 * followed_lines.CHUNK_BYTES)
    write(log, b"one\n" + long)
    assert lines(follower) == [b"one"]
    assert len(follower._current.partial) == 0
    write(log, long + b"\ntwo\n" + b"y" * (followed_lines.MAX_LINE_BYTES + 1) + b"\n")
    assert lines(follower) == [b"two"]
    assert follower.counts.too_long == 2


def test_what_is_too_much_for_one_poll_is_read_in_the_next(log, follower):
    write(log, b"")
    lines(follower)
    number = 3 * followed_lines.CHUNK_BYTES // 8
    write(log, b"".join(b"%07d\n" % place for place in range(number)))
    found = lines(follower, 1)
    assert 0 < len(found) < number
    assert lines(follower, 0) == []
    found += lines(follower)
    assert found == [b"%07d" % place for place in range(number)]


def test_a_rotated_log_that_cannot_be_read_is_an_error_after_the_rest_of_the_old_one(
    log, follower, clock
):
    write(log, b"")
    lines(follower)
    log.rename(log.with_suffix(".1"))
    write(log.with_suffix(".1"), b"last of the old\n")
    log.symlink_to(log)  # as unreadable to root as a foreign file is to others
    chunks = follower.poll(1e9, MOST)
    assert next(chunks) == [b"last of the old"]
    with pytest.raises(SourceError, match="symbolic links"):
        next(chunks)
    log.unlink()
    # Missing for a moment is a rotation, and for longer a log that is gone.
    assert lines(follower) == []
    clock.now += followed_lines.LINGER_SECONDS
    with pytest.raises(SourceError, match="No such file"):
        lines(follower)
    write(log, b"new\n")
    assert lines(follower) == [b"new"]


def test_an_owner_gives_the_space_of_what_was_read_back(log, clock):
    owner = LineFollower(log, clock, owner=True)
    with log.open("ab", buffering=0) as writer:
        lines(owner)
        read = 0
        for _ in range(8):
            writer.write(b"0123456\n" * (followed_lines.CHUNK_BYTES // 8))
            read += len(lines(owner))
        assert read == followed_lines.CHUNK_BYTES
        os.fsync(writer.fileno())
        status = os.fstat(writer.fileno())
        writer.write(b"last\n")
    if status.st_blocks * 512 > status.st_size // 2:
        pytest.skip("this file system cannot free a part of a file")
    assert status.st_blocks * 512 < followed_lines.CHUNK_BYTES // 4
    assert lines(owner) == [b"last"]
    owner.close()


def test_the_writer_of_a_quiet_log_may_go_on_in_the_old_file_after_its_rotation(
    log, follower, clock
):
    with log.open("ab", buffering=0) as writer:
        assert lines(follower) == []
        clock.now += 2 * followed_lines.LINGER_SECONDS
        log.rename(log.with_suffix(".1"))
        log.touch()
        assert lines(follower) == []
        writer.write(b"late\n")
        assert lines(follower) == [b"late"]


def test_a_rotated_file_that_could_not_be_read_yet_is_kept(log, follower, clock):
    log.touch()
    lines(follower)
    write(log, b"a\nb\n")
    log.rename(log.with_suffix(".1"))
    write(log, b"c\n")
    for _ in range(3):
        clock.now += 2 * followed_lines.LINGER_SECONDS
        assert lines(follower, most=0) == []
    assert lines(follower) == [b"a", b"b", b"c"]
