"""Which files are read, when, and never twice."""

from __future__ import annotations

import os

import pytest
from requirements import as_nobody

from exporter.errors import SourceError
from exporter.features.traces import trace_files
from exporter.features.traces.trace_files import TraceFileFollower, TraceFilesSettings

FAR = 1e12


def content(*numbers, start=10**12):
    """A whole file with one trace for each number."""
    records = []
    for n in numbers:
        records.append(f'{{"id":{n},"model_name":"m","model_version":1}}')
        for place, name in enumerate(
            ("GRPC_WAITREAD_END", "REQUEST_START", "REQUEST_END", "GRPC_SEND_END")
        ):
            records.append(
                f'{{"id":{n},"timestamps":[{{"name":"{name}","ns":{start + place}}}]}}'
            )
    return "[" + ",".join(records) + "]"


class Following:
    """A follower of files in a folder, at a time of the test's choosing."""

    def __init__(self, folder, **changes):
        self.folder = folder
        self.now = 0.0
        settings = {
            "path": folder / "t.json",
            "owner": False,
            "read_existing": True,
            "settle_seconds": 10.0,
            "max_file_bytes": 1 << 20,
            "max_run_bytes": 1 << 20,
            **changes,
        }
        self.follower = TraceFileFollower(
            TraceFilesSettings(**settings), lambda: self.now
        )

    def write(self, name, text):
        (self.folder / name).write_text(text, "utf-8")

    def poll(self, seconds=FAR):
        """The ids of the traces that are new."""
        return [
            int(trace.trace_id)
            for parsed in self.follower.poll(seconds)
            for trace in parsed.traces
        ]

    def count(self, outcome):
        return next(s.value for s in self.follower.samples() if s.labels == (outcome,))


@pytest.fixture
def following(tmp_path):
    return Following(tmp_path)


def test_each_file_is_read_once(following):
    following.write("t.json.0", content(1, 2))
    following.write("t.json.1", content(3))
    following.write("t.json", content(4))
    assert sorted(following.poll()) == [1, 2, 3, 4]
    assert following.poll() == []
    following.write("t.json.2", content(5))
    assert following.poll() == [5]
    assert following.count("read") == 4


def test_other_files_are_left_alone(following):
    for name in ("t.json.x", "t.json.1.gz", "other.json.0", "t_json.0", "xt.json.0"):
        following.write(name, content(1))
    (following.folder / "t.json.7").mkdir()
    (following.folder / "t.json.8").symlink_to(following.folder / "other.json.0")
    os.mkfifo(following.folder / "t.json.9")
    assert following.poll() == []


def test_an_index_that_begins_anew_and_overwrites_is_read_anew(following):
    following.write("t.json.0", content(1, 2))
    assert following.poll() == [1, 2]
    following.write("t.json.0", content(7, 8, 9))
    assert following.poll() == [7, 8, 9]


def test_a_replaced_file_of_the_same_size_is_read_anew(following):
    following.write("t.json.0", content(1))
    assert following.poll() == [1]
    fresh = following.folder / "fresh"
    fresh.write_text(content(2), "utf-8")
    fresh.rename(following.folder / "t.json.0")
    assert following.poll() == [2]


def test_a_renamed_file_is_not_read_again(following):
    following.write("t.json.0", content(1))
    assert following.poll() == [1]
    (following.folder / "t.json.0").rename(following.folder / "t.json.5")
    assert following.poll() == []


@pytest.mark.parametrize("offset_seconds", [-(10**9), 10**9, 0])
def test_the_clock_of_the_disk_does_not_matter(following, offset_seconds):
    following.write("t.json.0", content(1))
    then = 1_700_000_000 + offset_seconds
    os.utime(following.folder / "t.json.0", (then, then))
    assert following.poll() == [1]
    following.write("t.json.1", content(2))
    os.utime(following.folder / "t.json.1", (then - 500, then - 500))
    assert following.poll() == [2]
    assert following.poll() == []


def test_an_open_array_is_tried_again_until_it_is_whole(following):
    text = content(1, 2, 3)
    for end in range(20, len(text) - 1, 60):
        following.write("t.json.0", text[:end])
        following.now += 1
        assert following.poll() == []
        assert following.poll() == []
    following.write("t.json.0", text)
    assert following.poll() == [1, 2, 3]
    assert following.count("truncated") == 0


def test_an_array_that_stays_open_is_taken_as_it_is(following):
    text = content(1, 2, 3)
    following.write("t.json.0", text[: text.index('{"id":3') + 20])
    assert following.poll() == []
    following.now = 9.9
    assert following.poll() == []
    following.now = 10.0
    assert following.poll() == [1, 2]
    assert following.poll() == []
    assert following.count("truncated") == 1


def test_the_owner_deletes_what_was_read_and_nothing_else(tmp_path):
    following = Following(tmp_path, owner=True, read_existing=False)
    following.write("t.json.0", content(1))
    following.write("t.json.1", content(2)[:-5])
    following.write("notes", "keep")
    assert following.poll() == [1]
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"t.json.1", "notes"}
    following.now = 20.0
    following.poll()
    assert {path.name for path in tmp_path.iterdir()} == {"notes"}


def test_what_was_there_before_is_not_counted_again_after_a_restart(tmp_path):
    Following(tmp_path).write("t.json.0", content(1))
    restarted = Following(tmp_path, read_existing=False)
    assert restarted.poll() == []
    restarted.write("t.json.1", content(2))
    assert restarted.poll() == [2]


def test_a_file_that_grows_too_large_is_counted_and_left_unread_by_its_owner(tmp_path):
    following = Following(tmp_path, owner=True, max_file_bytes=1024)
    following.write("t.json.0", content(*range(100)))
    following.write("t.json.1", content(1))
    assert following.poll() == [1]
    assert following.count("too_large") == 1
    assert [file.name for file in tmp_path.iterdir()] == ["t.json.0"]
    assert following.poll() == []
    assert following.count("too_large") == 1


def test_a_run_reads_a_bounded_number_of_bytes(tmp_path):
    following = Following(tmp_path, max_run_bytes=1024)
    for n in range(20):
        following.write(f"t.json.{n}", content(n))
    size = len(content(1))
    runs = []
    while found := following.poll():
        runs.append(len(found))
    assert sum(runs) == 20
    assert max(runs) <= 1024 // size + 1


def test_a_run_ends_in_time(following):
    following.write("t.json.0", content(1))
    assert following.poll(seconds=0.0) == []
    assert following.poll() == [1]


def test_a_file_that_vanishes_between_listing_and_reading_is_no_error(following):
    for n in range(3):
        following.write(f"t.json.{n}", content(n))
    run = following.follower.poll(FAR)
    next(run)
    for path in following.folder.iterdir():
        path.unlink()
    assert list(run) == []
    assert following.count("vanished") == 2


def test_a_file_overwritten_between_listing_and_reading_is_read_next_time(tmp_path):
    following = Following(tmp_path, owner=True)
    for n in range(2):
        following.write(f"t.json.{n}", content(n))
        os.utime(tmp_path / f"t.json.{n}", (n, n))
    run = following.follower.poll(FAR)
    next(run)
    following.write("t.json.1", content(8, 9))
    assert list(run) == []
    assert following.poll() == [8, 9]


def test_a_folder_that_is_not_there_is_said_clearly(tmp_path):
    following = Following(tmp_path / "missing")
    with pytest.raises(SourceError, match="cannot be listed"):
        following.poll()
    (tmp_path / "missing").mkdir()
    following.write("t.json.0", content(1))
    assert following.poll() == [1]


def test_a_file_that_may_not_be_read_is_counted(reachable_path):
    following = Following(reachable_path)
    following.write("t.json.0", content(1))
    (following.folder / "t.json.0").chmod(0)
    with as_nobody():
        for _ in range(3):
            assert following.poll() == []
    assert following.count("unreadable") == 1
    assert following.poll() == [1]


def test_of_too_many_files_the_latest_are_read_and_the_others_counted(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(trace_files, "MAX_LISTED", 10)
    following = Following(tmp_path)
    found = []
    for number in range(60):
        following.write(f"t.json.{number}", content(number))
        changed = 10**18 + number
        os.utime(tmp_path / f"t.json.{number}", ns=(changed, changed))
        if number % 5 == 4:
            found += following.poll()
    assert found == list(range(60))
    assert following.count("beyond_limit") == 0
    for number in range(100, 125):
        following.write(f"t.json.{number}", content(number))
        changed = 10**18 + number
        os.utime(tmp_path / f"t.json.{number}", ns=(changed, changed))
    for number in range(40, 60):
        (tmp_path / f"t.json.{number}").unlink()
    for _ in range(3):
        found += following.poll()
    assert found == [*range(60), *range(115, 125)]
    assert following.count("beyond_limit") == 15


def test_a_folder_that_takes_long_to_list_is_listed_in_several_runs(
    following, monkeypatch
):
    def after_a_second(status):
        following.now += 1
        return fingerprint(status)

    fingerprint = trace_files._fingerprint
    monkeypatch.setattr(trace_files, "_fingerprint", after_a_second)
    monkeypatch.setattr(trace_files, "_BATCH", 1)
    for number in range(25):
        following.write(f"t.json.{number}", content(number))
    found = []
    for _ in range(40):
        started = following.now
        found += following.poll(seconds=5.0)
        assert following.now - started <= 2 * 5
    assert sorted(found) == list(range(25))


def test_files_are_read_after_a_clock_that_was_ahead_is_set_back(tmp_path, monkeypatch):
    monkeypatch.setattr(trace_files, "MAX_LISTED", 10)
    following = Following(tmp_path)
    for number in range(15):
        following.write(f"t.json.{number}", content(number))
        os.utime(tmp_path / f"t.json.{number}", (2e9, 2e9))
    read = following.poll()
    assert len(read) == 10
    for number in read:
        (tmp_path / f"t.json.{number}").unlink()
    assert following.poll() == []  # they were left out, and are counted
    assert following.count("beyond_limit") == 5
    following.write("t.json.50", content(50))
    assert following.poll() == [50]


def test_a_thousand_restarts_hold_no_memory_of_gone_files(tmp_path):
    following = Following(tmp_path, owner=True)
    for n in range(200):
        following.write(f"t.json.{n % 3}", content(n))
        assert following.poll() == [n]
    assert len(following.follower._done) <= 1
    assert following.follower._open_since == {}
