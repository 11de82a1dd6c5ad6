"""Files that are replaced at once, whatever lies where they are drafted."""

from __future__ import annotations

import os
import threading

import pytest

from exporter.system import whole_file


def lay_fifo(draft, _):
    os.mkfifo(draft)


def lay_link(draft, elsewhere):
    draft.symlink_to(elsewhere)


def lay_file(draft, _):
    draft.write_bytes(b"of a process that was killed")
    draft.chmod(0o444)


@pytest.mark.parametrize("lay", [lay_fifo, lay_link, lay_file])
def test_nothing_at_the_draft_delays_or_redirects_a_write(tmp_path, lay):
    path, elsewhere = tmp_path / "state", tmp_path / "elsewhere"
    elsewhere.write_bytes(b"untouched")
    lay(tmp_path / ".state.new", elsewhere)
    writing = threading.Thread(
        target=whole_file.write, args=(path, b"new"), daemon=True
    )
    writing.start()
    writing.join(60)
    assert not writing.is_alive()
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert elsewhere.read_bytes() == b"untouched"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["elsewhere", "state"]
