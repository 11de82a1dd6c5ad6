"""Reading the file: missing, endless, or written to while it is read."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from exporter.config import config_file
from exporter.config.configuration import load
from exporter.errors import ConfigError


def test_a_huge_file_is_refused_without_being_read_to_its_end(tmp_path):
    path = tmp_path / "huge.yaml"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # sparse: reading it all would end in MemoryError
    with pytest.raises(ConfigError, match="the maximum is 1048576"):
        load(path, {})


def test_a_file_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "none.yaml", {})
    assert caught.value.problems == ("cannot be read: No such file or directory",)


def test_what_is_no_regular_file_is_refused_without_waiting_for_it(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero")):
        with pytest.raises(ConfigError, match="is not a regular file"):
            load(path, {})
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load(tmp_path, {})


def test_a_file_is_read_once_nobody_writes_it_any_more(tmp_path, monkeypatch):
    monkeypatch.setattr(config_file, "_SETTLED_SECONDS", 3.0)
    monkeypatch.setattr(config_file, "_MOST_WAIT_SECONDS", 40.0)
    path = tmp_path / "config.yaml"
    text = "listen: {port: 8099}\nlog: {level: debug}\n"
    path.write_text("")

    def write():
        with path.open("w") as file:
            for character in text:
                file.write(character)
                file.flush()
                time.sleep(0.01)

    writer = threading.Thread(target=write)
    writer.start()
    assert config_file.content(path) == text.encode()
    writer.join()


def test_a_file_that_keeps_changing_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "config.yaml"
    path.write_text("{}")
    read = config_file.whole_file.read

    def changing(*arguments):
        path.write_text("{}")
        return read(*arguments)

    monkeypatch.setattr(config_file.whole_file, "read", changing)
    with pytest.raises(ConfigError, match="is being written"):
        load(path, {})


@pytest.mark.parametrize(
    ("raw", "cut_off"),
    [
        (b"", False),  # refused as such
        (b"a: 1", True),
        (b"a: 12", False),  # only the last newline is gone
        (b"a: 12\n", False),  # as if the last line was deleted
        (b"a: 12\nb", True),
        (b"a: 12\nb: 3\n", False),
        (b"a: 12\nb: 3\nc: 4", False),
        (b"a: 2", False),
    ],
)
def test_a_file_that_ends_in_mid_line_where_another_continues_is_cut_off(raw, cut_off):
    assert config_file.is_cut_off(raw, b"a: 12\nb: 3\n") is cut_off


def test_a_file_without_a_last_newline_may_become_shorter_in_its_last_line():
    # As a ConfigMap with "|-" that sets another number.
    assert not config_file.is_cut_off(b"a: 12\nb: 1", b"a: 12\nb: 10")


def test_the_process_environment_is_what_variables_mean(monkeypatch, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("listen: {port: '${env:TRITONWATCH_TEST_PORT}'}")
    monkeypatch.setenv("TRITONWATCH_TEST_PORT", "8099")
    assert os.environ["TRITONWATCH_TEST_PORT"] == "8099"
    assert load(path).listen.port == 8099
