"""Undo records: on disk before the fault, read whatever a crash left, undone once or often."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pytest
from abandoned_journals import abandoned, site_of, stop_of, stopped_by
from meanwhile import repeated
from waiting import patience, wait_until

from exporter import cli
from loadtests.chaos.faults import FAULTS, FreezeServer
from loadtests.chaos.primitives.process_refs import (
    TOKEN_VARIABLE,
    ProcessRef,
    new_token,
)
from loadtests.chaos.undoing import undo_journal as journals
from loadtests.chaos.undoing.injection import injections
from loadtests.chaos.undoing.undo import revert_entries, undo_all
from loadtests.chaos.undoing.undo_journal import Journal, JournalError
from loadtests.chaos.undoing.watchdog import running_watchdog
from loadtests.errors import FaultFailedError
from loadtests.interrupt import Interrupted, interrupted_once

if TYPE_CHECKING:
    from pathlib import Path

    from loadtests.chaos.undoing.undo import Attempt


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path, "run")
    first = journal.open("freeze_server", {"processes": [[1, 2]]})
    second = journal.open("kill_stub", {"model": "é"})
    journal.closed(first)
    assert journal.contents().entries == (second,)
    assert journal.contents().token == journal.token
    journal.end()
    assert journals.read(journal.path).entries == (second,)


def test_a_line_that_was_being_written_had_not_begun(tmp_path: Path) -> None:
    path = abandoned(
        tmp_path, {"run": "gone"}, tail=b'{"open": 1, "kind": "freeze_server", "rec'
    )
    contents = journals.read(path)
    assert contents.entries == ()
    assert contents.problems == ()
    assert undo_all(tmp_path)[0].problems == ()
    assert not path.exists()


def test_a_line_in_the_middle_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    path = abandoned(tmp_path, {"run": "gone"}, {"open": "x", "kind": 3}, {"closed": 7})
    found = undo_all(tmp_path)[0]
    (problem,) = found.problems
    assert problem.startswith(f"{path}, line 2: not a line of an undo journal")
    assert problem.endswith("delete the file")
    assert path.exists()


def test_no_folder_for_the_journal_breaks_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="no fault is injected without a record"):
        Journal.create(tmp_path / "file" / "state", "run")


def test_what_a_gone_runner_left_is_undone_once_and_again(
    tmp_path: Path, stopped: ProcessRef
) -> None:
    lines = ({"run": "gone"}, stop_of(stopped))
    abandoned(tmp_path, *lines)
    assert undo_all(tmp_path)[0].undone == ("freeze_server",)
    assert stopped.state != "T"
    assert undo_all(tmp_path) == ()
    abandoned(tmp_path, *lines)
    assert undo_all(tmp_path)[0].undone == ("freeze_server",)


def test_what_undo_does_not_do_is_not_told_as_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    killed = {"open": 1, "kind": "kill_sidecar", "record": {"processes": [[1, 1]]}}
    abandoned(tmp_path, {"run": "gone"}, killed)
    assert cli.main(["chaos", "undo", "--state", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert said == "gone: undone kill_sidecar: nothing remains; no sidecar is started\n"


def test_a_fault_of_another_version_is_left_to_that_version(tmp_path: Path) -> None:
    record = {"open": 1, "kind": "flood", "record": {"in": "B3"}}
    path = abandoned(tmp_path, {"run": "gone"}, record)
    (problem,) = set(undo_all(tmp_path)[0].problems)
    assert "found no fault 'flood'" in problem
    assert "run `tritonwatch chaos undo` of the version that injected it" in problem
    assert "{'in': 'B3'}" in problem
    assert path.exists()
    assert cli.main(["chaos", "undo", "--state", str(tmp_path)]) == 1


@pytest.mark.parametrize("record", [{}, {"pid": 4}], ids=["empty", "older"])
def test_records_of_another_version_are_told_with_their_file_and_kept(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    record: dict[str, Any],
) -> None:
    monkeypatch.setattr("loadtests.chaos.undoing.undo._TRY_SECONDS", 0.1)
    kinds = sorted(FAULTS.keys() - {"kill_sidecar"})  # which has nothing to undo
    opened = [
        {"open": number, "kind": kind, "record": record}
        for number, kind in enumerate(kinds, 1)
    ]
    path = abandoned(tmp_path, {"run": "gone"}, *opened)
    before = path.read_bytes()
    assert cli.main(["chaos", "undo", "--state", str(tmp_path)]) == 1
    told = capsys.readouterr().out
    for kind in kinds:
        assert f"LEFT {kind}: its record does not fit this version: field '" in told
    assert "run `tritonwatch chaos undo` of the version that injected it" in told
    assert str(path) in told
    assert "Error" not in told
    assert path.read_bytes() == before


@pytest.mark.parametrize("runner", [7, ["x", 1], [1]])
def test_a_runner_that_cannot_be_read_is_told(tmp_path: Path, runner: object) -> None:
    path = abandoned(tmp_path, {"run": "gone", "runner": runner})
    [problem] = undo_all(tmp_path)[0].problems
    assert f"{path}, line 1: not a line of an undo journal" in problem
    assert path.exists()


def test_one_that_cannot_be_undone_keeps_none_of_the_others(
    tmp_path: Path, stopped: ProcessRef
) -> None:
    abandoned(
        tmp_path,
        {"run": "gone"},
        stop_of(stopped),
        {"open": 2, "kind": "freeze_server", "record": {"no": "processes"}},
    )
    found = undo_all(tmp_path)[0]
    assert found.undone == ("freeze_server",)
    assert any("is missing" in problem for problem in found.problems)
    assert stopped.wait_until("S", patience())


class Slow(FreezeServer):
    """A fault whose undo takes longer than one is waited for at first."""

    kind: Literal["slow"] = "slow"  # type: ignore[assignment]
    undone: ClassVar[list[float]] = []

    @classmethod
    def revert(cls, record: dict[str, Any]) -> None:
        time.sleep(record["seconds"])
        cls.undone.append(time.monotonic())

    @classmethod
    def residue(cls, record: dict[str, Any]) -> list[str]:
        late = record["seconds"]
        return [] if cls.undone else [f"it is not undone yet, which takes {late} s"]


def test_an_undo_that_takes_its_time_is_waited_for_and_holds_up_no_other(
    tmp_path: Path, stopped: ProcessRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FAULTS, "slow", Slow)
    abandoned(
        tmp_path,
        {"run": "gone"},
        stop_of(stopped),
        {"open": 2, "kind": "slow", "record": {"seconds": 4.0}},
    )
    found: list[Any] = []
    undoing = threading.Thread(target=lambda: found.extend(undo_all(tmp_path)))
    undoing.start()
    assert stopped.wait_until("S", patience())
    assert not Slow.undone, "the other one has waited for it"
    undoing.join(patience())
    assert found[0].undone == ("slow", "freeze_server")
    assert len(Slow.undone) == 1


def test_an_undo_that_was_interrupted_goes_on_and_is_not_begun_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FAULTS, "slow", Slow)
    monkeypatch.setattr(Slow, "undone", [])
    journal = Journal.create(tmp_path, "run")
    entries = (journal.open("slow", {"seconds": 2.0}),)
    begun: dict[int, Attempt] = {}
    ending = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM))
    with interrupted_once():
        ending.start()
        with pytest.raises(Interrupted):
            revert_entries(journal, entries, settle=False, begun=begun)
    assert not Slow.undone
    found = revert_entries(journal, entries, settle=False, begun=begun)
    assert found == (["slow"], [])
    assert len(Slow.undone) == 1
    journal.end()


def test_processes_of_a_gone_run_are_ended(tmp_path: Path) -> None:
    token = new_token()
    child = subprocess.Popen(["sleep", "120"], env={TOKEN_VARIABLE: token})
    try:
        abandoned(tmp_path, {"run": "gone", "token": token})
        assert undo_all(tmp_path)[0].problems == ()
        assert child.wait(patience()) == -signal.SIGKILL
    finally:
        child.kill()
        child.wait()


def test_a_run_that_goes_on_is_left_alone_unless_forced(
    tmp_path: Path, victim: ProcessRef, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = Journal.create(tmp_path, "run")
    journal.open("freeze_server", stopped_by(victim))
    victim.send(signal.SIGSTOP)
    assert victim.wait_until("T", patience())
    arguments = ["chaos", "undo", "--state", str(tmp_path)]
    assert cli.main(arguments) == 3
    assert "still runs" in capsys.readouterr().out
    assert victim.state == "T"
    assert cli.main([*arguments, "--force"]) == 0
    assert "undone freeze_server" in capsys.readouterr().out
    assert victim.state != "T"
    journal.end()


def test_undo_with_nothing_to_do_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["chaos", "undo", "--state", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"nothing to undo in {tmp_path}\n"
    away = tmp_path / "away"
    assert cli.main(["chaos", "undo", "--state", str(away)]) == 2
    assert f"{away}: found no such folder" in capsys.readouterr().err


def test_a_block_undoes_whatever_happens_in_it(
    tmp_path: Path, victim: ProcessRef
) -> None:
    def fail() -> None:
        with injections(tmp_path, "run", deadline_seconds=60) as faults:
            faults.inject(FreezeServer(), site_of(victim))
            assert victim.state == "T"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert victim.state != "T"
    assert list(tmp_path.iterdir()) == []


def test_the_watchdog_ends_a_runner_that_hangs_beyond_its_deadline(
    tmp_path: Path, victim: ProcessRef
) -> None:
    hanging = (
        "import signal, sys, time\n"
        "from pathlib import Path\n"
        "from loadtests.chaos.faults import FreezeServer\n"
        "from loadtests.chaos.undoing.injection import injections\n"
        "from loadtests.chaos.primitives.process_refs import ProcessRef\n"
        "from loadtests.chaos.site import Site\n"
        "for number in (signal.SIGINT, signal.SIGTERM):\n"
        "    signal.signal(number, signal.SIG_IGN)\n"
        "victim = ProcessRef.of(int(sys.argv[2]))\n"
        "site = Site('t', '127.0.0.1:1', '127.0.0.1:2', find_server=lambda: victim)\n"
        "with injections(Path(sys.argv[1]), 'run', deadline_seconds=1) as faults:\n"
        "    faults.inject(FreezeServer(), site)\n"
        "    print('injected', flush=True)\n"
        "    time.sleep(600)\n"
    )
    runner = subprocess.Popen(
        [sys.executable, "-c", hanging, str(tmp_path), str(victim.pid)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert runner.stdout is not None
    with runner.stdout as said:
        assert said.readline() == "injected\n"
    assert runner.wait(patience()) == -signal.SIGKILL
    wait_until(lambda: not list(tmp_path.iterdir()))
    assert victim.state != "T"


def test_nothing_is_broken_without_a_watchdog(
    tmp_path: Path, victim: ProcessRef
) -> None:
    with injections(tmp_path, "run", deadline_seconds=60) as faults:
        watchdog = faults._watchdog.process
        watchdog.kill()
        watchdog.wait(patience())
        with pytest.raises(FaultFailedError, match="watchdog of this run has ended"):
            faults.inject(FreezeServer(), site_of(victim))
    assert victim.state != "T"


def test_a_watchdog_that_does_not_start_is_told_with_its_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "false")
    with (
        pytest.raises(FaultFailedError, match="the watchdog ended with status 1"),
        injections(tmp_path, "run", deadline_seconds=60),
    ):
        pass


def test_the_watchdog_does_not_hear_what_the_terminal_sends(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path, "run")
    with running_watchdog(journal, 60) as watchdog:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(watchdog.process.pid, number)
        assert os.getsid(watchdog.process.pid) != os.getsid(0)
        watchdog.require()
    journal.end()


def test_a_second_run_of_the_same_name_is_refused(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path, "run")
    with pytest.raises(JournalError, match="cannot be created: File exists"):
        Journal.create(tmp_path, "run")
    journal.open("freeze_server", {"processes": []})
    assert len(journal.contents().entries) == 1
    journal.end()


def test_a_journal_is_never_to_be_had_before_it_is_locked(tmp_path: Path) -> None:
    """`undo` at any moment finds no journal, or one whose run goes on."""

    def undo() -> None:
        assert all(run.busy for run in undo_all(tmp_path))

    with repeated(undo):
        for number in range(200):
            journal = Journal.create(tmp_path, f"run-{number}")
            entry = journal.open("freeze_server", {"processes": []})
            assert journal.contents().entries == (entry,)
            journal.closed(entry)
            journal.end()
