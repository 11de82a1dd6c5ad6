"""`tritonwatch chaos run` as a process: what it tells, and that its end undoes."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
import yaml
from process_experiments import (
    FREEZE,
    MODEL,
    NAME,
    Experiments,
    injecting,
)
from process_experiments import document as short_experiment
from waiting import patience, wait_until

from exporter import cli
from loadtests.chaos.primitives.process_refs import ProcessRef, started_with
from loadtests.chaos.undoing import undo_journal as journals

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


pytestmark = pytest.mark.triton


def command(*arguments: str) -> list[str]:
    program = "import sys; from exporter.cli import main; sys.exit(main())"
    return [sys.executable, "-c", program, "chaos", *arguments]


@contextlib.contextmanager
def frozen_by(*arguments: str) -> Generator[subprocess.Popen[str]]:
    """A command of `tritonwatch chaos`, from the moment its fault is in effect."""
    with subprocess.Popen(
        command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if "injected" in line:
                break
        else:
            pytest.fail(f"it never came to the fault: {said}")
        # What nobody reads would fill the pipe.
        threading.Thread(target=process.stderr.read, daemon=True).start()
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def running(
    experiments: Experiments, folder: Path, *arguments: str
) -> Generator[subprocess.Popen[str]]:
    """`tritonwatch chaos run` of a long freeze of the module's server."""
    file = folder / "frozen.yaml"
    file.write_text(yaml.safe_dump(experiments.document(injecting(FREEZE, 60.0))))
    state = ["--state", str(experiments.state), "--allow", NAME]
    with frozen_by("run", str(file), *state, *arguments) as process:
        yield process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_command_that_is_interrupted_undoes_and_writes_its_journal(
    experiments: Experiments, tmp_path: Path, number: signal.Signals
) -> None:
    folder = tmp_path / "journals"
    with running(experiments, tmp_path, "--json", str(folder)) as process:
        assert not experiments.well()
        process.send_signal(number)
        wait_until(experiments.well)
        assert process.wait(patience()) == 130
    document = json.loads((folder / "frozen.json").read_text())
    assert document["status"] == "interrupted"


def test_the_command_tells_what_it_found(
    experiments: Experiments, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "frozen.json"
    # Longer than a request is waited for.
    given = experiments.document(injecting(FREEZE, 1.5), low=1.0)
    file.write_text(json.dumps(given))
    state = ["--state", str(experiments.state)]
    assert cli.main(["chaos", "run", str(file), *state]) == 2
    assert "not on the allow-list" in capsys.readouterr().err
    code = cli.main(["chaos", "run", str(file), *state, "--allow", NAME])
    said = capsys.readouterr().out
    assert said.startswith("frozen: Test\n")
    # On a busy machine the sender itself may be late, and it says so.
    assert {1: "FINDING", 3: "INVALID"}[code] in said


def test_a_folder_that_cannot_be_written_to_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    state = ["--state", str(tmp_path / "state"), "--json", str(tmp_path / "file" / "x")]
    assert cli.main(["chaos", "run", "server-frozen", *state]) == 2
    said = capsys.readouterr()
    assert "Not a directory" in said.err
    assert "bringing up" not in said.err
    assert cli.main(["chaos", "soak", "--minutes", "1", *state]) == 2


def test_a_command_that_is_killed_leaves_nothing_of_its_own_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    state = tmp_path / "state"
    target = {"kind": "embedded", "models": [MODEL], "sidecar": {}, "proxy": True}
    document = short_experiment(target, injecting(FREEZE, 60.0))
    file = tmp_path / "frozen.yaml"
    file.write_text(yaml.safe_dump(document))
    with frozen_by("run", str(file), "--state", str(state)) as process:
        path = next(iter(state.iterdir()))
        contents = journals.read(path)
        assert contents.token is not None
        assert started_with(contents.token)
        (entry,) = contents.entries
        frozen = [ProcessRef.from_record(r) for r in entry.record["processes"]]
        assert {reference.state for reference in frozen} == {"T"}
        process.kill()
        wait_until(lambda: not list(state.iterdir()))
    assert started_with(contents.token) == []
    # Triton's own keeper ends it; its regions are named after its folder.
    wait_until(lambda: not any(reference.alive for reference in frozen))
    wait_until(lambda: not list((tmp_path / "scratch").iterdir()))
