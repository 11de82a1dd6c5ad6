"""Whom an undo trusts: what a journal names is killed and removed with the user's rights."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from abandoned_journals import abandoned

from exporter import cli
from loadtests.chaos.undoing import undo_journal as journals
from loadtests.chaos.undoing.undo import undo_all

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def naming(folder: Path) -> dict[str, Any]:
    return {"run": "gone", "runner": None, "token": None, "scratch": str(folder)}


def precious(tmp_path: Path) -> Path:
    """A folder that no experiment made."""
    folder = tmp_path / "precious"
    folder.mkdir()
    (folder / "file").write_text("data")
    return folder


def test_a_folder_that_no_experiment_made_stays(tmp_path: Path) -> None:
    folder = precious(tmp_path)
    abandoned(tmp_path, naming(folder))
    (run,) = undo_all(tmp_path)
    assert (folder / "file").exists()
    assert "precious" in run.problems[0]


def test_a_scratch_folder_of_a_gone_run_is_removed(tmp_path: Path) -> None:
    folder = journals.new_scratch()
    abandoned(tmp_path, naming(folder))
    (run,) = undo_all(tmp_path)
    assert not run.problems
    assert not folder.exists()


def test_a_link_to_a_scratch_folder_is_not_followed(tmp_path: Path) -> None:
    folder = journals.new_scratch()
    (tmp_path / "link").symlink_to(folder)
    abandoned(tmp_path, naming(tmp_path / "link"))
    (run,) = undo_all(tmp_path)
    assert run.problems
    assert folder.exists()
    shutil.rmtree(folder)


def give_away(journal: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may give a file away")
    os.chown(journal, 65534, 65534)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda journal: journal.chmod(0o620), "not trusted"),
        (lambda journal: journal.chmod(0o602), "not trusted"),
        (lambda journal: journal.chmod(0o666), "not trusted"),
        (give_away, "65534"),
    ],
)
def test_a_journal_that_others_may_have_written_is_not_read(
    tmp_path: Path, change: Callable[[Path], None], told: str
) -> None:
    folder = journals.new_scratch()
    change(abandoned(tmp_path, naming(folder)))
    for force in (False, True):
        (run,) = undo_all(tmp_path, force=force)
        assert told in run.problems[0]
    assert folder.exists()
    shutil.rmtree(folder)


def test_links_and_fifos_are_not_followed_and_nothing_waits_for_them(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    folder = journals.new_scratch()
    (state / f"link{journals.SUFFIX}").symlink_to(abandoned(tmp_path, naming(folder)))
    (state / f"dangling{journals.SUFFIX}").symlink_to(tmp_path / "nothing")
    os.mkfifo(state / f"fifo{journals.SUFFIX}", 0o600)
    (state / f"folder{journals.SUFFIX}").mkdir()
    found = {run.run: run for run in undo_all(state)}
    assert found.keys() == {"link", "dangling", "fifo", "folder"}
    assert all(run.problems and not run.busy for run in found.values())
    assert folder.exists()
    shutil.rmtree(folder)


def test_what_a_journal_says_cannot_steer_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = "\x1b]0;owned\x07\r\n\u202e"
    abandoned(
        tmp_path,
        {**naming(tmp_path), "run": hostile, "scratch": hostile},
        {"open": 1, "kind": hostile, "record": {hostile: hostile}},
    )
    assert cli.main(["chaos", "undo", "--state", str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert all(c.isprintable() or c == "\n" for c in printed)
    assert "\\x1b" in printed
