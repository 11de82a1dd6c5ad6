"""A reload takes over a complete file, and nothing of any other."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING

import pytest
from fake_triton import FakeModel, FakeTriton

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE_SECONDS = 60.0
SUCCESSFUL = "tritonwatch_config_last_reload_successful"


@pytest.fixture(scope="module")
def fake():
    with FakeTriton([FakeModel("m")]) as server:
        yield server


@pytest.fixture(scope="module")
def sidecar(fake, settings, tmp_path_factory, sidecar_process):
    started = sidecar_process(settings(fake), tmp_path_factory.mktemp("sidecar"))
    started.wait_listening()
    yield started
    code, _ = started.end()
    assert code == 0


def replace_by_fifo(file: Path) -> None:
    os.mkfifo(file)


def replace_by_device(file: Path) -> None:
    file.symlink_to("/dev/zero")


def replace_by_folder(file: Path) -> None:
    file.mkdir()


def replace_by_huge_file(file: Path) -> None:
    with file.open("wb") as opened:
        opened.truncate(1 << 40)


def replace_by(text: str):
    return lambda file: file.write_text(text)


BROKEN = {
    "missing": (lambda _: None, "No such file"),
    "empty": (replace_by(""), "write `{}`"),
    "blank": (replace_by(" \n\n"), "write `{}`"),
    "comments": (replace_by("# target:\n"), "write `{}`"),
    "zeros": (replace_by("\0" * 4096), "YAML does not allow"),
    "key-without-value": (replace_by("target:"), "found null"),
    "open-quote": (replace_by("target: {grpc: 'a:1"), "scanning"),
    "fifo": (replace_by_fifo, "not a regular file"),
    "device": (replace_by_device, "not a regular file"),
    "folder": (replace_by_folder, "Is a directory"),
    "huge": (replace_by_huge_file, "the maximum is"),
}


def assert_refused(sidecar, reason: str) -> None:
    """SIGHUP changes nothing, and the log says why."""
    said = len(sidecar.log)
    sidecar.process.send_signal(signal.SIGHUP)
    sidecar.wait(
        lambda p: p.value(SUCCESSFUL) == 0 and p.value("triton_up") == 1,
        PATIENCE_SECONDS,
    )
    assert reason in sidecar.log[said:]


def put_back(sidecar, config) -> None:
    with contextlib.suppress(FileNotFoundError):
        sidecar.file.rmdir() if sidecar.file.is_dir() else sidecar.file.unlink()
    sidecar.write(config)
    sidecar.process.send_signal(signal.SIGHUP)
    sidecar.wait(lambda p: p.value(SUCCESSFUL) == 1, PATIENCE_SECONDS)


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_refused_and_the_old_one_stays(name, fake, settings, sidecar):
    sidecar.wait(lambda p: p.value("triton_up") == 1, PATIENCE_SECONDS)
    replace, reason = BROKEN[name]
    sidecar.file.unlink()
    replace(sidecar.file)
    assert_refused(sidecar, reason)
    put_back(sidecar, settings(fake))


def test_a_file_that_was_cut_off_is_refused_wherever_in_a_line(fake, settings, sidecar):
    complete = sidecar.file.read_text()
    within = [
        size
        for size in range(1, len(complete))
        if "\n" not in complete[size - 1 : size + 1]
    ]
    for size in within[:: len(within) // 4]:
        sidecar.file.write_text(complete[:size])
        assert_refused(sidecar, "cut off")
        put_back(sidecar, settings(fake))
