"""Shell completion in real shells, and the manual page of every command."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import subprocess
import time
from typing import TYPE_CHECKING

import pytest
from commands import COMMAND
from waiting import patience

if TYPE_CHECKING:
    from pathlib import Path

# How each is started, and reads the completion in the file COMPLETION.
SHELLS = {
    "bash": (["bash", "--norc", "-i"], ". COMPLETION"),
    "zsh": (
        ["zsh", "-f", "-i"],
        'autoload -U compinit && compinit -u; eval "$(<COMPLETION)"',
    ),
    "tcsh": (["tcsh", "-f", "-i"], "set autolist; source COMPLETION"),
}
TYPED = [
    ("tritonwatch --vers", {"--version"}),
    ("tritonwatch co", {"compare", "coldstart"}),
    ("tritonwatch load r", {"run", "report"}),
    ("tritonwatch load run --pro", {"--protocol", "--profile"}),
    ("tritonwatch check --config ./xy", {"./xyz.yaml"}),
]


def printed(*arguments: str) -> str:
    done = subprocess.run(
        [COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""
    return done.stdout


class Terminal:
    """A shell on a terminal of its own."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self._terminal, inside = pty.openpty()
        # tcsh edits no line on a "dumb" terminal. Without a home no file of its user is read.
        around = {"PATH": os.environ["PATH"], "TERM": "vt100", "HOME": str(folder)}
        self._process = subprocess.Popen(
            ["setsid", "--ctty", *command],
            stdin=inside, stdout=inside, stderr=inside, cwd=folder, env=around,
        )  # fmt: skip
        os.close(inside)

    def typed(self, keys: str, wanted: set[str]) -> str:
        """Type keys; what is shown once all that is wanted is there, or late."""
        os.write(self._terminal, keys.encode())
        shown, deadline = "", time.monotonic() + patience(20)
        while not all(word in shown for word in wanted) and time.monotonic() < deadline:
            if select.select([self._terminal], [], [], 0.1)[0]:
                shown += os.read(self._terminal, 65_536).decode("utf-8", "replace")
        return shown

    def close(self) -> None:
        self._process.kill()
        self._process.wait(patience(20))
        os.close(self._terminal)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes_commands_options_choices_and_files(
    shell, require_commands, tmp_path
) -> None:
    require_commands(shell)
    (tmp_path / "completion").write_text(printed("--print-completion", shell))
    (tmp_path / "xyz.yaml").touch()
    command, prepare = SHELLS[shell]
    with contextlib.closing(Terminal(command, tmp_path)) as terminal:
        ready = prepare.replace("COMPLETION", "./completion") + "; echo re''ady\n"
        assert "ready" in terminal.typed(ready, {"ready"})
        for line, listed in TYPED:
            # tcsh lists options without their dashes.
            wanted = {w.lstrip("-") for w in listed} if shell == "tcsh" else listed
            shown = terminal.typed(f"{line}\t\t", wanted)
            assert all(word in shown for word in wanted), (line, shown)
            terminal.typed("\x15", set())  # the line is removed


def test_fish_completes_commands_options_and_choices(
    require_commands, tmp_path
) -> None:
    require_commands("fish")
    file = tmp_path / "completion"
    file.write_text(printed("--print-completion", "fish"))
    for line, wanted in TYPED[:-1]:
        script = f"source {file}; complete -C '{line}'"
        done = subprocess.run(
            ["fish", "--no-config", "-c", script],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        assert wanted <= {line.partition("\t")[0] for line in done.stdout.splitlines()}


def test_the_manual_page_has_the_help_of_every_command() -> None:
    page = printed("--print-man-page")
    sections = set(re.findall(r"^\.SH (.+)", page, re.MULTILINE))
    assert sections >= {"NAME", "tritonwatch serve", "tritonwatch load run"}
    helped = printed("load", "run", "--help").splitlines()[-1].strip()
    assert helped.replace("-", "\\-") in page
    # Nothing but its own requests begins with a dot.
    requests = {line.split()[0] for line in page.splitlines() if line.startswith(".")}
    assert requests == {".TH", ".SH", ".nf", ".fi"}
