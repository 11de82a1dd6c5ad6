"""What outlives the process, and what a file can be that should hold it."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import time
from pathlib import Path

import pytest
import structlog
from clocks import Clock
from descriptor_limits import no_descriptors_left
from waiting import patience

from drift import codec
from drift.reference import Profile
from exporter.features.drift import drift_state
from exporter.features.drift.drift_outlook import Outlooks
from exporter.features.drift.drift_settings import DriftForecastSettings
from exporter.features.drift.drift_state import FORMER, PROFILE, Store

ALARM = "triton_model_drift_alarm"
SAVED = "tritonwatch_drift_state_saved_timestamp_seconds"
OLDER = Path(__file__).parents[3] / "data" / "drift" / "reference-0.1.0.profile"
KEPT = (
    "triton_feature_drift_score",
    "triton_feature_drift_evidence",
    "triton_feature_drift_alarm",
    "triton_feature_missing_ratio",
    "triton_model_drift_alarm",
    "triton_model_drift_evidence",
    "triton_model_drift_start_timestamp_seconds",
    "triton_drift_window_rows",
    "triton_drift_window_timestamp_seconds",
)


@pytest.fixture
def stateful(bench, entry):
    entry["state"] = bench.folder / "state"
    entry["window"]["panes"] = 3
    return entry


@pytest.fixture
def file(bench):
    return bench.folder / "state" / "m.inputs.state"


def restart(bench, entry):
    bench.collector.close()
    bench.watch(entry)


def kept(bench):
    return {
        (s.spec.name, s.labels): s.value for s in bench.samples if s.spec.name in KEPT
    }


@pytest.mark.parametrize("shift", [0.0, 0.6])
def test_a_process_that_restarts_all_the_time_ends_where_one_that_never_did_does(
    bench, another_bench, stateful, shift
):
    whole = {**stateful, "state": None}
    another_bench.rng = type(bench.rng)(bench.rng.bit_generator.jumped(0))
    another_bench.watch(whole)
    bench.watch(stateful)
    for number in range(16):
        moved = shift if number > 8 else 0.0
        for part in range(3):
            for each in (bench, another_bench):
                each.send(each.rows(60, shift=moved))
                each.collect(after=4)
            if part == number % 3:
                restart(bench, stateful)
                bench.collect()
                another_bench.collect()
    assert kept(bench) == kept(another_bench)
    assert bench.value(ALARM, "m") == (shift > 0)


def test_an_alarm_is_back_before_the_next_window(bench, stateful):
    bench.watch(stateful)
    for _ in range(4):
        bench.window(bench.rows(300, shift=1.0))
    before = kept(bench)
    changes = bench.document()["changes"]
    restart(bench, stateful)
    assert bench.value(ALARM, "m") == 1
    after = kept(bench)
    # Evidence belongs to a window; the next one has some again.
    assert {k: v for k, v in before.items() if "evidence" not in k[0]} == after
    assert bench.document()["changes"] == changes


DUE = "tritonwatch_drift_state_due_timestamp_seconds"


def test_without_a_folder_nothing_is_written(bench, entry):
    bench.watch(entry)
    bench.window(bench.rows(200))
    bench.collector.close()
    assert sorted(path.name for path in bench.folder.iterdir()) == ["profile.json"]
    assert bench.all(SAVED) == []
    assert bench.all(DUE) == []


def test_the_state_is_saved_at_its_interval(bench, stateful, file):
    bench.watch({**stateful, "state_seconds": 30})
    bench.window(bench.rows(200), seconds=29)
    assert not file.exists()
    assert bench.value(DUE, "m", "inputs") == bench.epoch + 30
    bench.collect(after=2)
    assert file.exists()
    assert bench.value(DUE, "m", "inputs") == bench.epoch + 31 + 30
    saved = bench.value(SAVED, "m", "inputs")
    assert saved == 1_800_000_031
    assert file.stat().st_mode & 0o077 == 0


def cut(data):
    return data[: len(data) // 2]


def newer(data):
    return data.replace(b" watch 2 ", b" watch 3 ", 1)


def foreign(data):
    return codec.encode("profile", 1, {"rows": 1})


def hollow(data):
    return b"".join(codec.packed("watch", 2, {}))


def hollow_and_old(data):
    return codec.encode("watch", 1, {})


def strange(data):
    payload = codec.unpacked(data, "watch", 2)
    return b"".join(
        codec.packed("watch", 2, {**payload, "opened_at": "noon", "panes": 7})
    )


def of_another_shape(data):
    payload = codec.unpacked(data, "watch", 2)
    cells = payload["open"]["cells"][:-1]
    payload["open"] = {**payload["open"], "cells": cells}
    return b"".join(codec.packed("watch", 2, payload))


@pytest.mark.parametrize(
    "spoiled",
    [
        cut,
        newer,
        foreign,
        hollow,
        hollow_and_old,
        strange,
        of_another_shape,
    ],
)
def test_a_state_that_cannot_be_used_is_set_aside_with_a_line_in_the_log(
    bench, stateful, file, spoiled
):
    bench.watch(stateful)
    bench.window(bench.rows(200, shift=1.0))
    bench.collector.close()
    bad = spoiled(file.read_bytes())
    file.write_bytes(bad)
    with structlog.testing.capture_logs() as logs:
        bench.watch(stateful)
    (told,) = [e for e in logs if e["event"] == "drift_state_set_aside"]
    assert told["log_level"] == "warning"
    assert told["reason"]
    aside = file.with_name(file.name + ".set-aside")
    assert told["kept_as"] == str(aside)
    assert aside.read_bytes() == bad
    assert bench.state() == "watching"
    assert bench.value(ALARM, "m") is None, "as if it had never looked"
    bench.window(bench.rows(200))
    assert bench.value(ALARM, "m") == 0
    bench.collector.close()
    assert file.exists()


@contextlib.contextmanager
def disk_that_fails():
    """The reference can be read, the state cannot."""

    def fail(path):
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drift_state, "read_whole", fail)
        yield


@pytest.mark.parametrize("trouble", [no_descriptors_left, disk_that_fails])
def test_a_state_that_cannot_be_read_now_is_kept_and_read_later(
    bench, stateful, file, trouble
):
    bench.watch(stateful)
    for _ in range(4):
        bench.window(bench.rows(300, shift=1.0))
    bench.collector.close()
    whole = file.read_bytes()
    with structlog.testing.capture_logs() as logs:
        with trouble():
            bench.watch(stateful)
            for _ in range(3):
                bench.collect()
        assert bench.state() == "refused"
        assert file.read_bytes() == whole
        bench.collect()
    assert [e["log_level"] for e in logs].count("error") == 1
    assert not file.with_name(file.name + ".set-aside").exists()
    assert bench.value(ALARM, "m") == 1


def test_a_pipe_in_its_place_holds_nobody_up(bench, stateful, file):
    file.parent.mkdir()
    os.mkfifo(file)
    began = time.monotonic()
    bench.watch(stateful)
    assert bench.state() == "watching"
    assert time.monotonic() - began < patience(20)
    bench.collector.close()
    assert file.is_file()


def test_the_state_of_another_reference_is_set_aside(bench, stateful, file):
    bench.watch(stateful)
    bench.window(bench.rows(200))
    bench.collector.close()
    bench.profile(bench.rows(3000))
    with structlog.testing.capture_logs() as logs:
        bench.watch(stateful)
    (told,) = [e for e in logs if e["event"] == "drift_state_set_aside"]
    assert "another reference profile" in told["reason"]
    assert bench.state() == "watching"


def test_a_folder_that_cannot_be_one_costs_only_the_saving(bench, stateful):
    stateful["state"].write_text("a file")
    with structlog.testing.capture_logs() as logs:
        bench.watch({**stateful, "state_seconds": 1})
        for _ in range(3):
            bench.window(bench.rows(200))
    assert bench.value(ALARM, "m") == 0
    assert [e["event"] for e in logs].count("drift_state_not_saved") == 1
    assert bench.all(SAVED) == []
    assert bench.value(DUE, "m", "inputs") == bench.epoch + 1


@contextlib.contextmanager
def disk_of(size):
    """No file may grow beyond `size` bytes: writing fails as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_the_last_state_whole_and_is_told_once(
    bench, stateful, file
):
    bench.watch({**stateful, "state_seconds": 1})
    bench.window(bench.rows(200))
    before = file.read_bytes()
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            bench.send(bench.rows(200))
            with disk_of(1000):
                bench.collect(after=11)
        assert file.read_bytes() == before
        bench.window(bench.rows(200))
    assert file.read_bytes() != before
    events = [e["event"] for e in logs if e["event"].startswith("drift_state")]
    assert events == ["drift_state_not_saved", "drift_state_saved_again"]
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_models_of_any_name_have_a_file_of_their_own(bench, stateful, spec_of):
    names = ["a/b", "..", "a b", "x" * 300, "x" * 301, "ä"]
    bench.models(*(spec_of(name) for name in names))
    bench.watch(stateful)
    for name in names:
        bench.window(bench.rows(200), model=name)
    bench.collector.close()
    assert len(list(stateful["state"].iterdir())) == len(names)
    assert not (bench.folder / "b.inputs.state").exists()


def foreseeing(bench, stateful):
    bench.watch({**stateful, "forecast": {"psi_limit": 1.0, "every_seconds": 10}})


def test_drift_that_grows_gives_a_date_that_survives_a_restart(bench, stateful):
    foreseeing(bench, stateful)
    for step in range(40):
        bench.window(bench.rows(1000, shift=0.3 + 0.012 * step))
    before = bench.value("triton_retrain_eta_seconds", "m", "median")
    assert before > 0
    outlook = [s.labels for s in bench.all("triton_retrain_outlook_info")]
    assert outlook == [("m", "psi of inputs", "decay")]
    bench.collector.close()
    foreseeing(bench, stateful)
    assert bench.value("triton_retrain_eta_seconds", "m", "median") == before


def test_points_of_a_forecast_that_cannot_be_read_cost_nothing_else(
    bench, stateful, file
):
    foreseeing(bench, stateful)
    for _ in range(30):
        bench.window(bench.rows(200))
    bench.collector.close()
    points = file.with_name("m.inputs.outlook")
    points.write_bytes(cut(points.read_bytes()))
    with structlog.testing.capture_logs() as logs:
        foreseeing(bench, stateful)
    (told,) = [e for e in logs if e["event"] == "drift_state_set_aside"]
    assert told["file"] == str(points)
    assert bench.value(ALARM, "m") == 0
    assert bench.document()["retrain"]["outlooks"] == {}


def test_points_of_another_time_scale_begin_anew(bench, stateful, file):
    foreseeing(bench, stateful)
    for _ in range(30):
        bench.window(bench.rows(200))
    bench.collector.close()
    forecast = {"psi_limit": 1.0, "every_seconds": 3600}
    with structlog.testing.capture_logs() as logs:
        bench.watch({**stateful, "forecast": forecast})
    assert "10.0 s apart; want 3600 s" in "".join(str(e.get("reason")) for e in logs)


def test_points_that_are_restored_again_are_not_doubled():
    clock = Clock()
    settings = DriftForecastSettings(accuracy_floor=0.8, every_seconds=10)
    outlooks = Outlooks(settings, clock)
    for number in range(20):
        outlooks.add(None, 0.95 - 0.001 * number)
        clock.now += 10
    saved = outlooks.state()
    outlooks.restore(saved)
    assert outlooks.state() == saved


def test_a_learnt_reference_of_an_older_version_is_known_and_stays(tmp_path):
    written = OLDER.read_bytes()
    profile = Profile.from_bytes(written)
    assert profile.to_bytes() != written
    store = Store(tmp_path, "m", "inputs")
    store.write(PROFILE, written)
    assert store.keep(profile)
    assert store.read(PROFILE) == written
    assert store.read(FORMER) is None


def test_a_state_larger_than_can_be_read_is_not_written_and_told_once(
    bench, entry, monkeypatch
):
    forecast = {"psi_limit": 1.0, "every_seconds": 10}
    folder = bench.folder / "state"
    bench.watch({**entry, "state": folder, "state_seconds": 1, "forecast": forecast})
    bench.window(bench.rows(200))
    file = folder / "m.inputs.state"
    before = file.read_bytes()
    saved = bench.value(SAVED, "m", "inputs")
    monkeypatch.setattr(drift_state, "MAX_BYTES", len(before) // 2)
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            bench.window(bench.rows(200))
    assert file.read_bytes() == before
    assert bench.value(SAVED, "m", "inputs") == saved
    (told,) = [e for e in logs if e["event"].startswith("drift_state")]
    assert told["event"] == "drift_state_not_saved"
    assert f"the maximum is {len(before) // 2}" in told["reason"]
    assert "panes" in told["reason"]
