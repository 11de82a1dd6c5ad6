"""The golden probe beside a scripted server: files that change, budgets, verdicts."""

from __future__ import annotations

import os
import secrets
from dataclasses import replace

import numpy as np
import pytest
from accesses import access_to
from clocks import Clock
from fake_triton import (
    UNAVAILABLE,
    EmptyTensor,
    FakeModel,
    FakeTensor,
    FakeTriton,
    Filled,
    Slow,
)

from exporter.access.inventory import Inventory
from exporter.access.own_traffic import OwnTraffic
from exporter.access.work_board import ModelWork, WorkSnapshot
from exporter.features.golden import golden_formats
from exporter.features.golden.golden_settings import GoldenSettings
from exporter.triton.grpc import GrpcClient

KEY = ("m", "1")


@pytest.fixture
def scene(tmp_path):
    def first_of(inputs):
        """Class 1 where the first value is above the scene's `limit`."""
        made.meanwhile()
        high = inputs["x"][:, :1] > made.limit
        return {"p": np.hstack([1 - 0.9 * high, 0.9 * high]).astype(np.float32)}

    model = FakeModel(
        "m",
        (FakeTensor("x", "FP32", (2,)),),
        (FakeTensor("p", "FP32", (2,)),),
        versions=("1", "2"),
        answer=first_of,
    )
    with FakeTriton([model]) as fake:
        made = Scene(fake, tmp_path)
        yield made
        made.access.grpc.close()


class Scene:
    def __init__(self, fake, folder):
        self.fake, self.clock, self.folder = fake, Clock(1000.0), folder
        self.limit, self.meanwhile = 0.5, lambda: None
        self.access = access_to(
            GrpcClient(fake.grpc),
            own=OwnTraffic(run_id=secrets.token_hex(4)),
            clock=self.clock,
        )
        self.spec = self.access.grpc.model_spec("m", "1", timeout_seconds=10)
        self.serve(self.spec)
        self.file = folder / "set.npz"
        self.write()

    def serve(self, *specs):
        models = {(spec.name, spec.version): spec for spec in specs}
        self.access.board.publish(Inventory(up=True, ready=True, models=models))

    def write(self, rows=20, **more):
        rng = np.random.default_rng(1)
        x = rng.random((rows, 2)).astype(np.float32)
        label = (x[:, 0] > 0.5).astype(int)
        np.savez(self.file, **{"x": x, "label": label, **more})

    def probe(self, **more):
        return GoldenSettings.model_validate(
            {
                "data": {"file": str(self.file), "label": "label"},
                "timeout_seconds": 5,
                "idle_requests_per_second": 100,
                "idle_busy_ratio": 1,
                **more,
            }
        ).build(self.access)

    def attempt(self, probe, version="1"):
        targets = probe.targets(self.access.board.current)
        (target,) = (t for t in targets if t.key[1] == version)
        return probe.attempt(target)

    def round(self, probe, version="1"):
        for _ in range(3):
            self.attempt(probe, version)
            self.clock.now += 1

    def lose(self, probe):
        """Learn the baseline 1, then answer wrongly until that is noticed."""
        self.round(probe)
        self.limit = 0.9
        while not value(probe, "triton_golden_failing", "labels"):
            self.round(probe)


def value(probe, name, *labels):
    found = [
        s.value
        for s in probe.samples()
        if s.spec.name == name and set(labels) <= set(s.labels)
    ]
    assert len(found) < 2, found
    return found[0] if found else None


def label_of(probe, name):
    (found,) = {s.labels[-1] for s in probe.samples() if s.spec.name == name}
    return found


def test_a_file_that_changes_is_read_again(scene) -> None:
    probe = scene.probe()
    scene.attempt(probe)
    first = label_of(probe, "triton_golden_info")
    scene.write(rows=30)
    scene.clock.now += 11
    scene.attempt(probe)
    assert label_of(probe, "triton_golden_info") != first


@pytest.mark.parametrize("now", ["half a file", "no accuracy", "a pipe"])
def test_a_file_that_became_unusable_ends_the_judging_by_the_old_one(
    scene, now
) -> None:
    probe = scene.probe()
    assert scene.attempt(probe).outcome == "ok"
    if now == "no accuracy":
        scene.write(**{golden_formats.ACCURACY: np.array(["good"])})
    else:
        scene.file.unlink()
        os.mkfifo(scene.file) if now == "a pipe" else scene.file.write_text(now)
    for _ in range(2):
        scene.clock.now += 11
        verdict = scene.attempt(probe)
        assert verdict.outcome == "configuration"
        assert str(scene.file) in verdict.detail
        assert value(probe, "triton_golden_usable") == 0
        assert value(probe, "triton_golden_samples_total", "right") is None
    scene.file.unlink()
    scene.write()
    scene.clock.now += 11
    assert scene.attempt(probe).outcome == "ok"
    assert value(probe, "triton_golden_usable") == 1


def test_a_model_whose_signature_changed_is_told_and_asked_nothing(scene) -> None:
    probe = scene.probe()
    scene.attempt(probe)
    asked = scene.fake.received("infer")
    other = FakeModel("m", (FakeTensor("y", "FP32", (2,)),))
    with FakeTriton([other]) as changed:
        client = GrpcClient(changed.grpc)
        scene.serve(client.model_spec("m", "1", timeout_seconds=10))
        client.close()
    verdict = scene.attempt(probe)
    assert verdict.outcome == "configuration"
    assert "'y': input of m version 1 without a column" in verdict.detail
    assert scene.fake.received("infer") == asked


def test_what_the_budget_does_not_allow_is_not_asked(scene) -> None:
    probe = scene.probe(idle_requests_per_second=0.05, idle_busy_ratio=1)
    verdicts = [scene.attempt(probe) for _ in range(10)]
    # Three a minute, beside a model nobody else asks.
    assert [v is None for v in verdicts] == [False] * 3 + [True] * 7
    scene.clock.now += 61
    assert scene.attempt(probe) is not None


def test_production_makes_room_for_its_share(scene) -> None:
    probe = scene.probe(
        idle_requests_per_second=0.01, request_share=0.1, busy_share=0.5
    )
    for requests in (0, 90):
        work = ModelWork(10.0 * requests, 10.0 * requests, requests, requests)
        scene.access.work.publish(WorkSnapshot(scene.clock.now, {KEY: work}))
        scene.clock.now += 5
    asked = sum(scene.attempt(probe) is not None for _ in range(30))
    # A tenth of all: ten beside ninety.
    assert asked == 0
    work = ModelWork(1900.0, 1900.0, 180, 180)
    scene.access.work.publish(WorkSnapshot(scene.clock.now, {KEY: work}))
    asked = sum(scene.attempt(probe) is not None for _ in range(30))
    assert asked == 10


@pytest.mark.parametrize(
    ("behaviour", "outcome", "counted"),
    [
        (UNAVAILABLE, "unavailable", "unanswered"),
        (EmptyTensor(), "bad_output", "unanswered"),
        (Filled(float("nan")), "ok", "invalid"),
        (Slow(0.8), "timeout", "unanswered"),
    ],
    ids=str,
)
def test_an_answer_that_is_none_is_counted_as_what_it_is(
    scene, behaviour, outcome, counted
) -> None:
    # Time is real here: the deadline is the server's to miss.
    timeout = {"timeout_seconds": 0.3, "linger_seconds": 0.1}
    probe = scene.probe(**timeout)
    scene.fake.on("infer").reply(behaviour)
    verdict = scene.attempt(probe)
    if counted == "invalid":
        assert verdict.outcome == "bad_output"
    else:
        assert verdict.outcome == outcome
    assert value(probe, "triton_golden_samples_total", counted) == 8


def test_answers_of_long_ago_say_nothing_of_now(scene) -> None:
    probe = scene.probe()
    for _ in range(3):
        scene.attempt(probe)
    assert value(probe, "triton_golden_score_ratio", "accuracy") == 1
    assert value(probe, "triton_golden_failing", "labels") == 0
    scene.clock.now += 600
    assert value(probe, "triton_golden_score_ratio", "accuracy") is None
    assert value(probe, "triton_golden_failing", "labels") is None
    assert value(probe, "triton_golden_samples_total", "right") == 20
    assert value(probe, "triton_golden_usable") == 1
    scene.attempt(probe)
    assert value(probe, "triton_golden_score_ratio", "accuracy") == 1


@pytest.mark.parametrize("what", ["gone", "ended", "late", "followed", "bad", "old"])
def test_a_calibration_is_that_of_a_set_which_is_measured_now(scene, what) -> None:
    """Of a set that should be, but cannot be, the others are not known to agree."""
    probe, board = scene.probe(), scene.access.calibration
    scene.round(probe)
    found = board.get(KEY)
    assert found is not None
    board.publish(KEY, replace(found, dataset="other"))
    assert board.agree(KEY) is True
    if what == "gone":
        scene.serve()
    elif what == "ended":
        probe.close()
    elif what == "late":
        scene.attempt(probe)
        scene.attempt(probe)
        scene.meanwhile = probe.close
        scene.attempt(probe)
    elif what == "followed":
        after = scene.probe(interval_seconds=2)
        after.inherit(probe)
        probe.close()
        after.targets(scene.access.board.current)
    elif what == "bad":
        scene.file.write_bytes(b"half a file")
        scene.clock.now += 11
        scene.attempt(probe)
    else:
        scene.clock.now += 600
    probe.targets(scene.access.board.current)
    left = board.get(KEY)
    assert left is not None
    agrees = {"followed": True, "bad": False, "old": False}.get(what)
    assert board.agree(KEY) is agrees
    if what != "followed":
        assert left.dataset == "other"
        assert bool(probe.samples()) == (agrees is False)


def test_a_model_that_is_wholly_wrong_from_the_start_fails(scene) -> None:
    probe = scene.probe()
    scene.write(label=np.full(20, 7))
    for _ in range(4):
        scene.attempt(probe)
        scene.clock.now += 11
    assert value(probe, "triton_golden_score_ratio", "accuracy") == 0
    assert value(probe, "triton_golden_failing", "labels") == 1


def test_a_recovery_needs_answers(scene) -> None:
    """Most time out after the accuracy was lost; the few that are answered are right."""
    probe = scene.probe(baseline_accuracy=0.95, samples_per_request=1)
    scene.fake.on("infer", model="m").reply(Filled(0.5))
    while not value(probe, "triton_golden_failing", "labels"):
        scene.attempt(probe)
        scene.clock.now += 1
    for number in range(40):
        scene.fake.behave()
        if number % 20:
            scene.fake.on("infer", model="m").reply(UNAVAILABLE)
        scene.attempt(probe)
        scene.clock.now += 1
    assert value(probe, "triton_golden_failing", "labels") == 1
    scene.fake.behave()
    for _ in range(40):
        scene.attempt(probe)
        scene.clock.now += 1
    assert value(probe, "triton_golden_failing", "labels") == 0


def test_an_ignored_input_that_the_model_lacks_says_nothing_about_the_model(
    scene,
) -> None:
    probe = scene.probe(ignored_input="seed")
    verdict = scene.attempt(probe)
    assert verdict.outcome == "configuration"
    assert "ignored_input is 'seed'; m has ['x']" in verdict.detail


def interval(probe, metric):
    return [
        value(probe, "triton_golden_score_ci_ratio", metric, bound)
        for bound in ("lower", "upper")
    ]


def test_scores_have_an_interval_that_copies_do_not_narrow(scene) -> None:
    probe = scene.probe()
    for _ in range(3):
        scene.attempt(probe)
    low, high = interval(probe, "accuracy")
    # 20 of 20: Wilson's is 0.84 to 1, and Student's t takes a little.
    assert low == pytest.approx(0.84, abs=0.02)
    assert high == 1
    assert interval(probe, "f1") == [None, None]
    worth = value(probe, "triton_golden_score_effective_samples")
    # 20 samples, less the cost of not knowing their correlation.
    assert 15 < worth < 20


@pytest.mark.parametrize("what", ["file", "model", "settings"])
def test_an_alarm_outlives_a_change_that_shows_no_recovery(scene, what) -> None:
    """A file that is only touched, a model that is only loaded again, other settings."""
    probe = scene.probe()
    scene.lose(probe)
    if what == "file":
        os.utime(scene.file, (1, 1))
        scene.clock.now += 11
    elif what == "model":
        scene.serve(replace(scene.spec, instances=4))
    else:
        before, probe = probe, scene.probe(loss=0.05)
        probe.inherit(before)
    scene.limit = 0.5
    scene.attempt(probe)
    assert value(probe, "triton_golden_failing", "labels") == 1
    assert value(probe, "triton_golden_baseline_ratio") == 1
    if what == "file":
        assert value(probe, "triton_golden_score_ratio", "accuracy") < 1
    scene.round(probe)
    assert value(probe, "triton_golden_failing", "labels") == 0


def test_a_baseline_is_learnt_anew_for_other_data(scene) -> None:
    probe = scene.probe()
    scene.limit = 0.9
    scene.round(probe)
    assert value(probe, "triton_golden_baseline_ratio") < 1
    scene.limit = 0.5
    other = scene.probe(data={"file": str(scene.file), "label": "label", "top_k": [1]})
    other.inherit(probe)
    scene.write(rows=21)
    scene.clock.now += 11
    for changed in (probe, other):
        scene.round(changed)
        assert value(changed, "triton_golden_baseline_ratio") == 1


def test_versions_that_come_together_have_baselines_of_their_own(scene) -> None:
    probe = scene.probe()
    second = replace(scene.spec, version="2")
    scene.serve(scene.spec, second)
    scene.round(probe, "2")
    scene.attempt(probe, "1")
    assert value(probe, "triton_golden_baseline_ratio", "2") == 1
    assert value(probe, "triton_golden_baseline_ratio", "1") is None


@pytest.mark.parametrize(("first", "baseline"), [(0.5, 1), (0.9, 0.55)])
def test_a_later_version_is_held_to_its_first_round_or_to_that_before(
    scene, first, baseline
) -> None:
    """The best of several rounds would be too high."""
    probe = scene.probe()
    scene.limit = 0.9
    scene.round(probe)
    scene.serve(replace(scene.spec, version="2"))
    for scene.limit in (first, 0.5):
        scene.attempt(probe, "2")
        assert value(probe, "triton_golden_baseline_ratio") in {0.55, baseline}
        scene.round(probe, "2")
    assert value(probe, "triton_golden_baseline_ratio") == baseline
