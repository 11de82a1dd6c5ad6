"""Shell completion and the manual page of every command."""

from __future__ import annotations

import re
import subprocess

import pytest
from commands import COMMAND


def printed(*arguments: str) -> str:
    done = subprocess.run(
        [COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""
    return done.stdout


@pytest.fixture(scope="module")
def completion() -> str:
    return printed("--print-completion", "bash")


@pytest.mark.parametrize(
    ("line", "offered", "absent"),
    [
        ("tritonwatch ", {"serve", "load", "chaos", "--version"}, {"run", "--config"}),
        ("tritonwatch lo", {"load"}, {"serve"}),
        ("tritonwatch load ", {"run", "capacity", "pair"}, {"serve"}),
        ("tritonwatch load run --pro", {"--protocol", "--profile"}, {"--json"}),
        ("tritonwatch demo --scenario ", {"silent-failure", "drift"}, {"--port"}),
        ("tritonwatch check --config ", set(), {"silent-failure"}),
    ],
)
def test_bash_offers_what_may_follow(completion, line, offered, absent) -> None:
    words = line.split(" ")
    script = (
        f"{completion}\nCOMP_WORDS=({' '.join(map(repr, words))})\n"
        f"COMP_CWORD={len(words) - 1}\n_tritonwatch\nprintf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    done = subprocess.run(
        ["bash", "-euc", script], capture_output=True, text=True, timeout=20, check=True
    )
    found = set(done.stdout.split())
    assert offered <= found
    assert not absent & found


def test_the_manual_page_has_the_help_of_every_command() -> None:
    page = printed("--print-man-page")
    sections = set(re.findall(r"^\.SH (.+)", page, re.MULTILINE))
    assert sections >= {"NAME", "tritonwatch serve", "tritonwatch load run"}
    helped = printed("load", "run", "--help").splitlines()[-1].strip()
    assert helped.replace("-", "\\-") in page
    # Nothing but its own requests begins with a dot.
    requests = {line.split()[0] for line in page.splitlines() if line.startswith(".")}
    assert requests == {".TH", ".SH", ".nf", ".fi"}
