"""The curve's figures and intervals, and the way from load and power to them."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import time

import numpy as np
import pytest
from fake_triton import UNAVAILABLE, FakeModel, FakeTriton
from load_runs import about

from exporter.cli import main
from exporter.errors import UnavailableError
from exporter.features.energy.energy_meter import MICRO
from exporter.features.energy.sources.power_model import ModelSettings
from exporter.features.energy.sources.power_source import Device, Reading
from loadtests.efficiency import efficiency_report, metering
from loadtests.efficiency.efficiency_curve import measure, verdict_of
from loadtests.efficiency.pairs import compare
from loadtests.errors import PlanError
from loadtests.execute import prepared
from loadtests.machine_guard import GuardLimits, Watch, Window
from loadtests.profiles.rate_profiles import SpecPower
from loadtests.result import Requests, RunResult
from loadtests.scenario import Scenario

DEVICE = Device("gpu", "nvml", "GPU-1", max_watts=700.0)


class ScriptedPower:
    """A source of 200 W by its counter; `away` while it raises."""

    kind = "nvml"
    description = "scripted"

    def __init__(self):
        self.away = False
        self.closed = False
        self._began = time.monotonic()

    def read(self):
        if self.away:
            raise UnavailableError("gone")
        now = time.monotonic()
        return (Reading(DEVICE, now, round((now - self._began) * 200 * MICRO)),)

    def close(self):
        self.closed = True


class ScriptedSettings:
    boundary = "gpu"

    def __init__(self):
        self.source = ScriptedPower()

    def find(self, _):
        return self.source


def test_a_power_source_is_closed_when_its_block_ends():
    settings = ScriptedSettings()
    with metering.metered([settings]):
        assert not settings.source.closed
    assert settings.source.closed


def test_energy_between_two_instants_is_what_the_counter_rose():
    source = ScriptedPower()
    with metering.PowerMeter({"gpu": source}) as meter:
        start = time.time()
        time.sleep(0.6)
        end = time.time()
        meter.wait_past(end)
    drawn = meter.drawn("gpu", start, end)
    assert drawn.known
    assert drawn.joules == pytest.approx(200 * (end - start), rel=0.2)
    assert not meter.drawn("gpu", start - 60, end).known
    assert meter.sources == {"gpu": "nvml"}


@pytest.fixture
def fake():
    with FakeTriton([FakeModel("m"), FakeModel("n")]) as fake:
        yield fake


@pytest.fixture
def metered_run(fake):
    """Of two models, with Ctrl-C as its first event."""
    with (
        metering.PowerMeter({"gpu": ScriptedPower()}) as meter,
    ):
        scenario = Scenario.model_validate(
            {
                "target": {"address": fake.grpc},
                "models": [{"model": "m"}, {"model": "n"}],
                "profile": {"kind": "closed"},
            }
        )
        yield metering.MeteredRun(scenario, 1, meter, lambda: True, print)


def test_an_interrupted_curve_does_not_wait_for_its_levels(metered_run):
    found = measure(
        metered_run,
        prepared(metered_run.scenario),
        level_seconds=600.0,
        maximum_per_second=20.0,
        follow=print,
    )
    assert "it was interrupted" in found.reasons


def test_a_level_whose_requests_fail_has_no_joules_to_believe(metered_run, fake):
    run = dataclasses.replace(metered_run, stop=lambda: False)
    mix = prepared(run.scenario)
    fake.on("infer").reply(UNAVAILABLE)
    found = measure(run, mix, level_seconds=0.2, maximum_per_second=100.0, follow=print)
    assert not found.valid
    assert "level 50 %: 100 % of the requests had no correct answer" in found.reasons
    assert not any(reason.startswith("level idle: 1") for reason in found.reasons)


def test_an_interrupted_comparison_starts_no_further_pair(metered_run):
    found = compare(metered_run, pairs=10_000, block_seconds=600.0, data=None)
    assert found.pairs == 1
    assert "the run was interrupted" in found.reasons


@pytest.mark.parametrize("labels", [0, 3])
def test_rows_without_a_label_each_are_refused(metered_run, tmp_path, labels):
    shape = next(iter(prepared(metered_run.scenario).entries)).spec.inputs[0]
    data = {shape.name: np.zeros((2 * bool(labels), 4), np.float32)}
    np.savez(tmp_path / "rows.npz", label=np.zeros(labels, np.int64), **data)
    with pytest.raises(PlanError, match=r"holds no rows|where another column has 3"):
        compare(metered_run, pairs=1, block_seconds=1.0, data=tmp_path / "rows.npz")


def test_without_any_source_it_says_how_to_give_one(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "exporter.features.energy.sources.power_model._STAT", tmp_path / "none"
    )
    settings = ModelSettings(idle_watts=1, full_watts=2)
    with (
        pytest.raises(PlanError, match=r"--idle-watts and --full-watts"),
        metering.metered((settings,)),
    ):
        pass


def test_joules_an_inference_are_a_ratio_of_sums_with_its_interval():
    rng = np.random.default_rng(3)
    answered = rng.poisson(100, 20).astype(float)
    joules = 0.5 * answered + rng.normal(0, 1, 20)
    found = efficiency_report.ratio_of_sums(joules, answered, seed=1)
    assert found.low < 0.5 < found.high
    assert found.high - found.low < 0.02
    assert efficiency_report.ratio_of_sums([1, 2], [1, 1], seed=1).low is None


def test_a_speed_up_is_the_median_of_pairs():
    rng = np.random.default_rng(5)
    base = rng.uniform(50, 150, 12)
    found = efficiency_report.median_ratio(
        1.3 * base * rng.normal(1, 0.02, 12), base, seed=1
    )
    assert found.low < 1.3 < found.high
    assert found.estimate == pytest.approx(1.3, rel=0.03)


@pytest.mark.parametrize(
    ("lost", "gained"), [(0, 0), (0, 5), (30, 10)], ids=["same", "better", "worse"]
)
def test_a_change_of_accuracy_on_the_same_rows_has_an_interval_even_without_one(
    lost, gained
):
    before = np.array([True] * (400 + lost) + [False] * (49 - lost + gained))
    after = before.copy()
    after[:lost] = False
    after[-gained or len(after) :] = True
    found = efficiency_report.paired_change(before, after)
    assert found.estimate == pytest.approx((gained - lost) / len(before))
    assert found.low < found.estimate < found.high


def watched(seconds, disturbed):
    """One window a second; `disturbed` are those in which others took two thirds."""
    return Watch(
        tuple(
            Window(
                start_seconds=float(second),
                end_seconds=second + 1.0,
                other_cpu=0.66 if second in disturbed else 0.0,
                steal=0.0,
                pressure=0.0,
                sender_cpu=0.2,
                server_cpu=0.3,
                clock_step_seconds=0.0,
            )
            for second in range(seconds)
        ),
        GuardLimits(),
    )


def test_one_disturbed_level_spoils_the_curve_though_most_of_the_run_was_quiet():
    profile = SpecPower(
        maximum_requests_per_second=100, level_seconds=10, idle_seconds=10
    )
    idle = profile.phases()[-1]
    seconds = range(int(idle.start_seconds), int(idle.end_seconds))
    result = RunResult.of(
        about(), Requests.empty(0), duration_seconds=1.0, sender_cpu_seconds=0.1
    )

    def reasons(disturbed):
        watch = watched(int(profile.length_seconds), set(disturbed))
        assert watch.verdict().valid  # one second in eleven at most
        return verdict_of((), result, [], profile, watch).reasons

    [reason] = reasons(seconds)
    assert reason.startswith(f"level {idle.name}: other processes disturbed 10 of 10")
    assert reasons(seconds[:2]) == ()


@pytest.fixture
def busy_machine():
    """Other processes that use all of the processor."""
    code = "import time\nwhile time.monotonic() > 0: pass"
    others = [
        subprocess.Popen([sys.executable, "-c", code])
        for _ in range(2 * (os.cpu_count() or 1))
    ]
    yield
    for other in others:
        other.kill()
        other.wait()


def test_a_pair_of_models_on_a_busy_machine_is_not_valid(metered_run, busy_machine):
    run = dataclasses.replace(metered_run, stop=lambda: False)
    found = compare(run, pairs=1, block_seconds=2.0, data=None)
    assert not found.valid
    assert any("other processes" in reason for reason in found.reasons)


@pytest.mark.parametrize("value", ["0", "-5", "nan", "inf", "ten"])
@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("efficiency", "--level-seconds"),
        ("efficiency", "--maximum"),
        ("pair", "--block-seconds"),
    ],
)
def test_durations_and_rates_that_cannot_be_are_refused(capfd, command, option, value):
    with pytest.raises(SystemExit) as ended:
        main(["load", command, "--model", "m", option, value])
    assert ended.value.code == 2
    assert f"{option}: found {value!r}; want a number above 0" in capfd.readouterr().err
