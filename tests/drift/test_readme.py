"""The page does what it says: every command and the program in it are run."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from exporter.cli import main

PAGE = Path(__file__).parents[2] / "drift" / "README.md"
TEXT = PAGE.read_text("utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def write(path, rng, rows, *, start, shift=0.0):
    times = start + np.arange(rows) * 60
    age = rng.normal(40 + 12 * shift, 12, size=rows)
    income = rng.lognormal(10, 0.5, size=rows)
    plan = rng.choice(["free", "plus"], size=rows)
    lines = ["time,age,income,plan"]
    lines += [
        f"{t},{a:.2f},{i:.2f},{p}"
        for t, a, i, p in zip(times, age, income, plan, strict=True)
    ]
    path.write_text("\n".join(lines) + "\n", "utf-8")


@pytest.mark.parametrize(("shift", "code"), [(0.0, 0), (0.5, 1)])
def test_every_command_of_the_page_does_what_it_says(
    shift, code, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    write(tmp_path / "train.csv", rng, 5000, start=1_790_000_000)
    write(tmp_path / "today.csv", rng, 1000, start=1_795_000_000, shift=shift)
    layout, _ = blocks("yaml")
    (tmp_path / "features.yaml").write_text(layout, "utf-8")
    commands = [line for block in blocks("sh") for line in block.splitlines()]
    assert len(commands) == 5
    for command in commands:
        name, *arguments = shlex.split(command)
        capsys.readouterr()
        assert name == "tritonwatch"
        assert main(arguments) == (0 if "fit" in arguments else code), command
        if "--json" in arguments:
            outcome = json.loads(capsys.readouterr().out)["outcome"]
            assert outcome == ("drift" if code else "no_drift")
    assert (tmp_path / "report.html").exists()
    assert (tmp_path / "model.json").exists()


def test_the_program_of_the_page_finds_what_moved(capsys):
    [program] = blocks("python")
    exec(program, {})  # noqa: S102 - our own page
    assert capsys.readouterr().out == "drift ['x[0]', 'x[1]', 'x[2]', 'x[3]']\n"
