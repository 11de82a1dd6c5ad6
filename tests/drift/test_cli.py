"""`tritonwatch drift`: exit codes, what is said, and awkward data, through the command."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from drift_command import run, save, table
from whole_pages import whole

from drift.judgement import Judgement
from drift.reference import Profile
from exporter.cli import main


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("files"), np.random.default_rng(1)
    return {
        "train": save(folder / "train.npz", table(rng, 4000)),
        "same": save(folder / "same.csv", table(rng, 800)),
        "moved": save(folder / "moved.csv", table(rng, 800, shift=0.5, missing=0.1)),
        "few": save(folder / "few.csv", table(rng, 12)),
    }


@pytest.fixture(scope="module")
def profile(files):
    path = files["train"].with_name("profile.json")
    arguments = ["drift", "fit", "--data", str(files["train"]), "--ordered"]
    assert main([*arguments, "--output", str(path)]) == 0
    return path


def test_a_profile_says_where_it_comes_from(profile, files, tmp_path):
    found = Profile.from_bytes(profile.read_bytes())
    assert found.schema.names == ("age", "income", "plan")
    assert found.rows == 4000
    assert found.provenance.source == "train.npz"
    assert len(found.provenance.sha256) == 64
    assert {"python", "numpy", "tritonwatch"} <= set(found.provenance.versions)
    assert found.caveats == ()
    again = tmp_path / "again.json"
    run("fit", "--data", files["train"], "--ordered", "--output", again)
    assert again.read_bytes() == profile.read_bytes()


def test_unchanged_data_are_no_drift_and_exit_0(profile, files, capsys):
    assert run("compare", profile, files["same"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("No drift: ")
    assert "No drift in 3 features." in text
    assert "with a probability of at most 0.01" in text
    assert re.search(
        r"A shift of a typical feature by 0\.\d+ standard deviations", text
    )


def test_moved_data_are_drift_and_exit_1_naming_feature_size_and_bins(
    profile, files, capsys
):
    assert run("compare", profile, files["moved"]) == 1
    text = capsys.readouterr().out
    assert "Drift in 1 of 3 features." in text
    assert re.search(r"^ *CHANGED  age", text, re.MULTILINE)
    assert "missing 0 % → " in text
    assert "CHANGED  income" not in text


def test_a_change_that_rounds_to_nothing_has_no_sign_of_a_fall(tmp_path, capsys):
    values = np.random.default_rng(2).normal(size=2000)
    files = [
        save(tmp_path / f"{name}.npz", {"x": values - shift})
        for name, shift in (("before", 0), ("after", 0.002))
    ]
    assert run("compare", *files) == 0
    found = capsys.readouterr().out
    assert "+0.00 sd" in found, found


def test_too_few_data_say_so_and_exit_0(profile, files, capsys):
    assert run("compare", profile, files["few"]) == 0
    assert capsys.readouterr().out.startswith("Not enough data: ")


def test_json_has_everything_and_nothing_that_is_no_json(profile, files, capsys):
    assert run("compare", profile, files["moved"], "--json") == 1
    text = capsys.readouterr().out
    found = json.loads(text, parse_constant=pytest.fail)
    again = Judgement.model_validate(found)
    assert again.outcome == "drift"
    assert [feature.name for feature in again.changed] == ["age"]
    kinds = [distance.kind for distance in again.features[0].distances]
    assert {"psi", "jensen_shannon", "kolmogorov_smirnov", "wasserstein"} <= set(kinds)


def test_two_data_files_are_compared_without_a_profile(files, capsys):
    assert run("compare", files["train"], files["same"]) == 0
    assert "False-alarm rate not guaranteed: the reference is not in the order" in (
        capsys.readouterr().out
    )


def test_columns_that_the_comparison_leaves_out_are_named(profile, tmp_path, capsys):
    rows = table(np.random.default_rng(3), 800)
    times = np.arange(800).astype("datetime64[s]")
    more = {"at": times, "t": times, "new": np.zeros(800)}
    data = save(tmp_path / "data.npz", rows | more)
    assert run("compare", profile, data, "--time", "t") == 0
    said = "Not tested: columns that the reference does not watch: at (datetime64[s]), new."
    assert said in capsys.readouterr().out


def test_the_hours_of_the_week_are_no_drift_beside_a_reference_that_knows_them(
    tmp_path,
):
    rng = np.random.default_rng(7)

    def of_hours(hours):
        times = 1_795_392_000 + 3600 * np.repeat(hours, 40)
        night = np.cos(2 * np.pi * np.repeat(hours, 40) / 24)
        return {"t": times, "x": night + rng.normal(size=times.size)}

    train = save(tmp_path / "train.npz", of_hours(np.arange(168 * 5)))
    night = save(tmp_path / "night.npz", of_hours(np.arange(168 * 5, 168 * 5 + 5)))
    profile = tmp_path / "p.json"
    assert run("fit", "--data", train, "--time", "t", "--output", profile) == 0
    assert run("compare", profile, night, "--time", "t") == 0
    assert run("compare", profile, night) == 1


def test_a_report_is_one_page_that_needs_nothing_else(profile, files, tmp_path, capsys):
    page = tmp_path / "report.html"
    assert run("report", profile, files["moved"], "--output", page) == 1
    content = page.read_text("utf-8")
    # The test of correlations is no feature.
    assert (
        content.count("in 1 of 3 features.") == content.count(" rows · 3 features") == 1
    )
    whole(content)
    assert "http" not in re.sub(r"http-equiv", "", content)
    # A distribution and its distances of each of three features, and of all together.
    assert content.count("<figure>") == 4 * 2
    assert "prefers-color-scheme: dark" in content
    for word in ("changed most", "SHA-256", "train.npz", "missing", "PSI bound"):
        assert word in content


def test_names_from_data_are_text_on_the_page(tmp_path):
    evil = "<img src=x onerror=alert(1)>"
    columns = {evil: np.arange(600.0), "c": np.array([evil, "b"] * 300)}
    train = save(tmp_path / "train.npz", columns)
    page = tmp_path / "report.html"
    run("report", train, train, "--output", page)
    assert "img" not in whole(page.read_text("utf-8")).seen


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare", "PROFILE", "nothing.csv"], "No such file"),
        (["compare", "nothing.json", "DATA"], "No such file"),
        (["compare", "PROFILE", "PROFILE"], "found a profile; want data"),
        (["compare", "DAMAGED", "DATA"], "damaged profile file"),
        (
            ["compare", "PROFILE", "LACKING"],
            "columns 'plan' of tensor 'plan' are absent",
        ),
        (["compare", "PROFILE", "TEXT"], "contain text; the reference has numbers"),
        # Before any data are read.
        (
            ["fit", "--data", "none.npz", "--output", "/nowhere/p.json"],
            "cannot be written",
        ),
        (
            ["fit", "--data", "DATA", "--output", "p.json", "--features", "BAD"],
            "features.0.tensor: Field required",
        ),
        (
            ["fit", "--data", "DATA", "--output", "p.json", "--categorical", "zip"],
            "--categorical names zip; there are age",
        ),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(
    arguments, message, profile, files, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    damaged = tmp_path / "damaged.json"
    damaged.write_bytes(profile.read_bytes()[:-7])
    lacking = save(tmp_path / "lacking.csv", {"age": [1.0], "income": [2.0]})
    text = save(tmp_path / "text.csv", {"age": ["old"], "income": [1], "plan": ["a"]})
    bad = tmp_path / "bad.yaml"
    bad.write_text("features: [{name: a}]")
    known = {
        "PROFILE": profile,
        "DATA": files["same"],
        "DAMAGED": damaged,
        "LACKING": lacking,
        "TEXT": text,
        "BAD": bad,
    }
    assert run(*(known.get(argument, argument) for argument in arguments)) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.startswith("tritonwatch drift: ")
    assert captured.err.count("\n") == 1
    assert captured.out == ""


@pytest.mark.parametrize("value", ["0", "1", "x", "-1"])
def test_a_chance_that_is_none_is_refused(value, files):
    with pytest.raises(SystemExit) as caught:
        run("compare", files["train"], files["same"], "--false-alarms", value)
    assert caught.value.code == 2


def test_a_broken_pipe_or_an_interrupt_leaves_no_half_profile(tmp_path, files):
    target = tmp_path / "p.json"
    target.write_text("old")
    broken = save(tmp_path / "broken.csv", {"a": [1] * 12_000 + ["x"]})
    assert run("fit", "--data", broken, "--output", target) == 2
    assert target.read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith("tmp")) == []


def test_a_file_that_no_reader_expects_is_exit_2_and_not_drift(
    profile, files, tmp_path, capsys
):
    raw = bytearray(files["train"].read_bytes())
    for head, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        place = raw.find(head)
        while place >= 0:
            raw[place + flags] |= 1
            place = raw.find(head, place + 1)
    encrypted = tmp_path / "encrypted.npz"
    encrypted.write_bytes(raw)
    assert run("compare", profile, encrypted) == 2
    told = capsys.readouterr().err
    assert str(encrypted) in told
    assert "encrypted" in told
    assert told.count("\n") == 1


def test_an_error_that_nobody_expects_is_a_line_and_exit_2(
    files, profile, capsys, monkeypatch
):
    def fails(*_):
        raise MemoryError("not\nenough")

    monkeypatch.setattr(Profile, "from_bytes", fails)
    assert run("compare", profile, files["same"]) == 2
    assert capsys.readouterr().err == "tritonwatch drift: MemoryError: not enough\n"


def test_a_full_disk_is_exit_2_and_leaves_nothing_behind(files, tmp_path):
    folder = tmp_path / "full"
    folder.mkdir()
    command = Path(sys.executable).with_name("tritonwatch")
    target = folder / "p.json"
    fit = [command, "drift", "fit", "--data", files["train"], "--output", target]
    words = [shlex.quote(str(word)) for word in fit]
    run = subprocess.run(
        # No file of more than a kilobyte can be written.
        ["/bin/bash", "-c", f"ulimit -f 1; exec {' '.join(words)}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 2
    told = f"tritonwatch drift: {target}: could not be written: File too large\n"
    assert run.stderr == told
    assert list(folder.iterdir()) == []


def test_the_command_as_installed_tells_its_progress_on_stderr(tmp_path):
    command = Path(sys.executable).with_name("tritonwatch")
    data = save(tmp_path / "d.npz", {"x": np.arange(1000.0)})
    run = subprocess.run(
        [command, "drift", "fit", "--data", data, "--output", tmp_path / "p.json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.startswith(f"{tmp_path / 'p.json'}: 1,000 rows, 1 numeric")
    assert "false-alarm rate not guaranteed" in run.stdout
    helped = subprocess.run(
        [command, "drift", "--help"], capture_output=True, text=True, check=True
    )
    assert all(word in helped.stdout for word in ("fit", "compare", "report"))


@pytest.mark.parametrize(
    ("delimiter", "decimal"), [(";", ","), ("\t", "."), ("|", ".")]
)
def test_drift_is_found_whatever_separates_the_columns(
    delimiter, decimal, tmp_path, capsys
):
    """Version 0.1.0 read such a file as one column of text and called it no drift."""
    rng = np.random.default_rng(11)

    def written(name, shift):
        values = table(rng, 900, shift=shift)
        lines = [delimiter.join(values)]
        lines += [
            delimiter.join(str(v).replace(".", decimal) for v in row)
            for row in zip(*values.values(), strict=True)
        ]
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n", "utf-8")
        return path

    train, same, later = (
        written(name, shift)
        for name, shift in (("train.csv", 0), ("same.csv", 0), ("later.csv", 0.8))
    )
    profile = tmp_path / "p.json"
    assert run("fit", "--data", train, "--ordered", "--output", profile) == 0
    told = capsys.readouterr().out
    assert "900 rows, 2 numeric and 1 categorical features" in told
    assert f"columns separated by {delimiter!r}" in told
    assert ("decimal commas" in told) == (decimal == ",")
    assert run("compare", profile, same) == 0
    assert run("compare", profile, later) == 1
    assert "age" in capsys.readouterr().out
