"""Undo where the journal, its volume, its host or the files are not what they were."""

from __future__ import annotations

import errno
import hashlib
import os
from typing import TYPE_CHECKING, Any

import pytest
from abandoned_journals import abandoned, site_of, stop_of
from monitoring import free_port

from exporter import cli
from loadtests.chaos.faults import FreezeServer, LyingModel
from loadtests.chaos.faults.model_faults import WRAPPER
from loadtests.chaos.undoing import undo_journal as journals
from loadtests.chaos.undoing.injection import injections
from loadtests.chaos.undoing.undo import undo_all

if TYPE_CHECKING:
    from pathlib import Path

    from loadtests.chaos.primitives.process_refs import ProcessRef


def test_faults_recorded_in_a_journal_that_was_removed_are_undone(
    tmp_path: Path, victim: ProcessRef
) -> None:
    with injections(tmp_path, "run", deadline_seconds=60) as faults:
        next(tmp_path.glob("*")).unlink()
        faults.inject(FreezeServer(), site_of(victim))
        assert victim.state == "T"
    assert victim.state != "T"


def test_a_journal_that_cannot_be_written_holds_up_no_undo(
    tmp_path: Path, stopped: ProcessRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = abandoned(tmp_path, {"run": "gone"}, stop_of(stopped))
    before = file.read_bytes()

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(journals.os, "write", full)
    (run,) = undo_all(tmp_path)
    assert stopped.state != "T"
    assert run.undone == ("freeze_server",)
    assert "undone, but not recorded" in run.problems[0]
    assert file.read_bytes() == before


def test_a_journal_that_cannot_be_read_keeps_none_of_the_others(
    tmp_path: Path, stopped: ProcessRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = abandoned(tmp_path, {"run": "broken"}).rename(
        tmp_path / f"broken{journals.SUFFIX}"
    )
    abandoned(tmp_path, {"run": "gone"}, stop_of(stopped))
    unreadable, read = broken.stat().st_ino, os.pread

    def bad_sector(descriptor: int, *more: int) -> bytes:
        if os.fstat(descriptor).st_ino == unreadable:
            raise OSError(errno.EIO, "Input/output error")
        return read(descriptor, *more)

    monkeypatch.setattr(journals.os, "pread", bad_sector)
    first, second = undo_all(tmp_path)
    assert "Input/output error" in first.problems[0]
    assert second.undone == ("freeze_server",)
    assert stopped.state != "T"


def test_a_journal_on_a_volume_that_is_read_only_now_is_undone(
    tmp_path: Path, stopped: ProcessRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    abandoned(tmp_path, {"run": "gone"}, stop_of(stopped))
    opened = os.open

    def read_only(path: Any, flags: int, *more: Any, **also: Any) -> int:
        if flags & os.O_RDWR:
            raise OSError(errno.EROFS, "Read-only file system")
        return opened(path, flags, *more, **also)

    monkeypatch.setattr(journals.os, "open", read_only)
    (run,) = undo_all(tmp_path)
    assert stopped.state != "T"
    assert run.undone == ("freeze_server",)


def test_faults_of_another_host_are_left_to_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header = {"run": "far", "runner": None, "token": None, "host": "elsewhere"}
    fault = {"open": 1, "kind": "freeze_server", "record": {"processes": [[1, 1]]}}
    file = abandoned(tmp_path, header, fault)
    arguments = ["chaos", "undo", "--state", str(tmp_path)]
    assert cli.main(arguments) == 1
    assert "run it on host 'elsewhere'" in capsys.readouterr().out
    assert file.exists()
    assert cli.main([*arguments, "--force"]) == 0
    assert not file.exists()


def wrapped(repository: Path) -> dict[str, Any]:
    """The record of a fault over a model, and its files."""
    place = repository / "m" / "1"
    place.mkdir(parents=True)
    (place / "original.py").write_text("v1")
    (place / "model.py").write_bytes(WRAPPER.read_bytes())
    (place / "fault.json").write_text("{}")
    digests = [hashlib.sha256(b).hexdigest() for b in (b"v1", WRAPPER.read_bytes())]
    return {
        "model": "m",
        "http": f"127.0.0.1:{free_port()}",
        "place": str(place),
        "fault": {},
        **dict(zip(("digest", "wrapper"), digests, strict=True)),
    }


@pytest.mark.parametrize("deployed", ["", "v2"])
def test_a_model_that_was_deployed_meanwhile_is_not_overwritten(
    tmp_path: Path, deployed: str
) -> None:
    record = wrapped(tmp_path)
    model = tmp_path / "m" / "1" / "model.py"
    if deployed:
        model.write_text(deployed)
    LyingModel.revert(record)
    assert model.read_text() == (deployed or "v1")
    assert LyingModel.residue(record) == []
    assert [file.name for file in model.parent.iterdir()] == ["model.py"]


def test_a_repository_that_is_not_mounted_is_not_undone(tmp_path: Path) -> None:
    record = wrapped(tmp_path / "mounted")
    (tmp_path / "mounted").rename(tmp_path / "away")
    assert "mount it and undo again" in LyingModel.residue(record)[0]
    assert LyingModel.residue({**record, "scratch": True}) == []
