"""Golden probes on a real Triton whose models begin to lie while it calls them ready."""

from __future__ import annotations

import math
import random
import secrets
import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from exporter.cli import main
from exporter.collectors.base import Access
from exporter.collectors.statistics import StatisticsSettings
from exporter.golden import data
from exporter.inventory import Inventory, InventoryBoard
from exporter.mirror import MirrorHub
from exporter.own_traffic import OwnTraffic
from exporter.probes.golden import GoldenSettings
from exporter.settings import ModelFilter
from exporter.spans import SpanBuffer
from exporter.testing.faults import Fault, set_fault, write_faulty_model
from exporter.triton import backend
from exporter.triton.embedded import EmbeddedTriton
from exporter.triton.grpc import GrpcClient
from exporter.triton.http import HttpClient
from exporter.triton.model import InferRequest

pytestmark = [pytest.mark.triton, pytest.mark.timeout(120)]

DEMO = Path(__file__).parents[2] / "deploy" / "models"
HELD_OUT = DEMO / "digits_fp32/data/held_out.npz"
CACHED = "response_cache { enable: true }\n"


@pytest.fixture(scope="module")
def repository(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("golden") / "models"
    for name in ("digits_fp32", "diabetes"):
        write_faulty_model(folder, name, source=DEMO / name)
    write_faulty_model(folder, "digits_cached", source=DEMO / "digits_fp32")
    config = folder / "digits_cached" / "config.pbtxt"
    config.write_text(config.read_text() + CACHED)
    shutil.copytree(DEMO / "slow", folder / "slow")
    return folder


@pytest.fixture(scope="module")
def server(repository, triton_environment):
    caches = backend.inspect(triton_environment).site / "pytriton/tritonserver/caches"
    arguments = [f"--cache-directory={caches}", "--cache-config=local,size=1048576"]
    with EmbeddedTriton(
        repository, environment=triton_environment, arguments=arguments
    ) as triton:
        yield triton


@pytest.fixture
def lie(repository):
    """Have a model go over to a fault; every model is honest at the end."""
    told = set()

    def tell(name, fault="none", **more):
        told.add(name)
        set_fault(repository, name, Fault(fault, **more))

    yield tell
    for name in told:
        set_fault(repository, name, Fault())


@pytest.fixture
def access(server):
    grpc, http = GrpcClient(server.grpc), HttpClient(server.http)
    board = InventoryBoard()
    models = {
        (name, "1"): grpc.model_spec(name, "1", timeout_seconds=10)
        for name in ("digits_fp32", "digits_cached", "diabetes", "slow")
    }
    board.publish(Inventory(up=True, ready=True, models=models))
    yield Access(
        grpc=grpc,
        http=http,
        metrics=None,
        models=ModelFilter(),
        board=board,
        own=OwnTraffic(run_id=secrets.token_hex(4)),
        clock=time.monotonic,
        spans=SpanBuffer(time.time_ns, random.Random(0)),  # noqa: S311 - ids of spans
        exposed=tuple,
        mirror=MirrorHub(),
    )
    grpc.close()
    http.close()


class Probing:
    """A golden probe of one model, driven by hand and not by the clock."""

    def __init__(self, access, model="digits_fp32", **settings):
        settings = {
            "models": {"include": [model]},
            "timeout_seconds": 10,
            "samples_per_request": 32,
            "idle_requests_per_second": 100,
            "idle_busy_ratio": 1.0,
            **settings,
        }
        self.probe = GoldenSettings.model_validate(settings).build(access)
        (self.target,) = self.probe.targets(access.board.current)

    def attempt(self):
        return self.probe.attempt(self.target)

    def round(self):
        """Attempts until the round is over; the verdicts."""
        before = self.value("triton_golden_rounds_total") or 0
        verdicts = []
        deadline = time.monotonic() + 60
        while (self.value("triton_golden_rounds_total") or 0) == before:
            verdicts.append(self.attempt())
            assert verdicts[-1] is not None, "over the budget"
            assert time.monotonic() < deadline
        return verdicts

    def value(self, name, *labels):
        found = [
            sample.value
            for sample in self.probe.samples()
            if sample.spec.name == name and set(labels) <= set(sample.labels)
        ]
        assert len(found) < 2, found
        return found[0] if found else None

    def outcomes(self):
        return {
            sample.labels[-1]: sample.value
            for sample in self.probe.samples()
            if sample.spec.name == "triton_golden_samples_total" and sample.value
        }

    def failing(self):
        return {
            sample.labels[-1]
            for sample in self.probe.samples()
            if sample.spec.name == "triton_golden_failing" and sample.value
        }


@pytest.fixture(scope="module")
def recorded(server, tmp_path_factory) -> Path:
    """The digits with the answers of the honest model."""
    output = tmp_path_factory.mktemp("recorded") / "digits.npz"
    status = main(
        [
            "golden",
            "record",
            "--model",
            "digits_fp32",
            "--grpc",
            server.grpc,
            "--data",
            str(HELD_OUT),
            "--label",
            "label",
            "--output",
            str(output),
        ]
    )
    assert status == 0
    return output


def labelled(file=HELD_OUT, **more):
    return {"file": str(file), "label": "label", "name": "digits", **more}


class TestRecording:
    def test_what_is_recorded_is_the_set_with_its_answers_and_its_accuracy(
        self, recorded
    ) -> None:
        settings = GoldenSettings(data=labelled(recorded)).data
        golden = data.read(settings)
        original = data.read(GoldenSettings(data=labelled()).data)
        np.testing.assert_array_equal(
            golden.columns["pixels"], original.columns["pixels"]
        )
        assert golden.expected["probabilities"].shape == (449, 10)
        assert golden.accuracy == pytest.approx(436 / 449)
        assert golden.sha256 != original.sha256

    def test_the_same_model_gives_the_same_bytes(
        self, server, recorded, tmp_path
    ) -> None:
        again = tmp_path / "again.npz"
        main(
            [
                "golden",
                "record",
                "--model",
                "digits_fp32",
                "--grpc",
                server.grpc,
                "--data",
                str(HELD_OUT),
                "--label",
                "label",
                "--output",
                str(again),
            ]
        )
        first, second = np.load(recorded), np.load(again)
        assert first.files == second.files
        for name in first.files:
            np.testing.assert_allclose(
                first[name].astype(float), second[name].astype(float), rtol=1e-4
            )

    def test_scoring_against_it_ends_with_1_once_the_model_lies(
        self, server, recorded, lie, capsys
    ) -> None:
        arguments = ["golden", "score", "--model", "digits_fp32", "--label", "label"]
        arguments += ["--grpc", server.grpc, "--data", str(recorded)]
        assert main(arguments) == 0
        assert "match 1\n" in capsys.readouterr().out
        lie("digits_fp32", "shifted_class")
        assert main(arguments) == 1
        assert "match 0\n" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("fault", "told"),
        [("nan", "not recorded"), ("shifted_class", "not deterministic")],
    )
    def test_a_model_that_cannot_be_trusted_is_not_recorded(
        self, server, lie, tmp_path, capsys, fault, told
    ) -> None:
        lie("digits_fp32", fault, share=1.0 if fault == "nan" else 0.3)
        output = tmp_path / "none.npz"
        status = main(
            [
                "golden",
                "record",
                "--model",
                "digits_fp32",
                "--grpc",
                server.grpc,
                "--data",
                str(HELD_OUT),
                "--output",
                str(output),
            ]
        )
        assert status == 1
        assert told in capsys.readouterr().err
        assert not output.exists()

    def test_a_model_that_is_not_there_is_named_with_those_that_are(
        self, server, capsys
    ) -> None:
        status = main(
            [
                "golden",
                "score",
                "--model",
                "nobody",
                "--grpc",
                server.grpc,
                "--data",
                str(HELD_OUT),
            ]
        )
        assert status == 1
        assert "digits_fp32" in capsys.readouterr().err


class TestScores:
    def test_an_honest_model_has_the_quality_it_was_trained_to(self, access) -> None:
        probing = Probing(access, data=labelled(top_k=[3]))
        assert {verdict.outcome for verdict in probing.round()} == {"ok"}
        score = "triton_golden_score_ratio"
        assert probing.value(score, "accuracy") == pytest.approx(436 / 449)
        assert probing.value(score, "top_3") > 0.99
        assert probing.value(score, "auc") > 0.99
        assert probing.outcomes() == {"right": 436, "wrong": 13}
        assert probing.failing() == set()
        assert probing.value("triton_golden_baseline_ratio") == pytest.approx(436 / 449)
        assert 0 < probing.value("triton_golden_calibration_error_ratio") < 0.05
        assert probing.value("triton_output_confidence_ratio", "golden:digits") > 0.9
        shares = [
            s.value
            for s in probing.probe.samples()
            if s.spec.name == "triton_output_class_ratio"
        ]
        assert sum(shares) == pytest.approx(1)

    def test_features_by_name_and_text_reach_the_model_as_it_takes_them(
        self, access
    ) -> None:
        held_out = DEMO / "diabetes/data/held_out.npz"
        probing = Probing(access, "diabetes", data=labelled(held_out))
        probing.round()
        score = "triton_golden_score_ratio"
        # As train.py measured them: 63 of 85, and 0.8633.
        assert probing.value(score, "accuracy") == pytest.approx(63 / 85)
        assert probing.value(score, "auc") == pytest.approx(0.8633, abs=1e-4)

    def test_our_own_requests_are_in_the_ledger(self, access) -> None:
        probing = Probing(access, data=labelled())
        probing.round()
        counts = access.own.counts(("digits_fp32", "1"))
        assert counts.inferences == 449
        assert counts.in_flight == 0


class TestLies:
    @pytest.mark.parametrize(
        ("fault", "outcome"),
        [
            ("zeros", "wrong"),
            ("nan", "invalid"),
            ("shifted_class", "wrong"),
            ("stale", "wrong"),
            ("error", "unanswered"),
        ],
    )
    def test_each_is_told_within_one_round_while_triton_calls_the_model_ready(
        self, access, recorded, lie, fault, outcome
    ) -> None:
        probing = Probing(access, data=labelled(recorded))
        probing.round()
        assert probing.failing() == set()
        lie("digits_fp32", fault, after_requests=3)
        verdicts = probing.round()
        assert {v.outcome for v in verdicts} - {"ok"}
        assert probing.outcomes()[outcome] >= 32
        if fault != "error":
            assert "expected" in probing.failing()
            assert probing.value("triton_golden_score_ratio", "match") < 0.3
        index = access.grpc.repository_index(timeout_seconds=10)
        assert all(entry.ready for entry in index)

    def test_the_flag_falls_with_the_first_honest_round(
        self, access, recorded, lie
    ) -> None:
        probing = Probing(access, data=labelled(recorded))
        lie("digits_fp32", "zeros")
        probing.round()
        assert "expected" in probing.failing()
        lie("digits_fp32")
        probing.round()
        assert probing.failing() == set()
        assert probing.value("triton_golden_score_ratio", "match") == 1

    def test_with_labels_alone_a_lie_is_told_as_a_loss_of_accuracy(
        self, access, lie
    ) -> None:
        probing = Probing(access, data=labelled())
        probing.round()
        lie("digits_fp32", "shifted_class")
        probing.round()
        assert probing.failing() == {"labels"}
        lie("digits_fp32")
        probing.round()
        assert probing.failing() == set()

    def test_two_points_lost_are_told_in_the_time_theory_allows(
        self, access, lie
    ) -> None:
        probing = Probing(access, data=labelled(), samples_per_request=64, loss=0.02)
        probing.round()
        # Two rows of a hundred are struck, others each time.
        lie("digits_fp32", "shifted_class", share=0.02)
        after, before = 1 - 436 / 449 * 0.98, 13 / 449
        divergence = after * math.log(after / before) + (1 - after) * math.log(
            (1 - after) / (1 - before)
        )
        bound = math.log(100_000) / divergence
        samples = 0
        while "labels" not in probing.failing():
            probing.attempt()
            samples += 64
            assert samples < 4 * bound, "one run in thousands takes so long"

    def test_what_is_wrong_is_said_with_row_and_values(
        self, access, recorded, lie
    ) -> None:
        probing = Probing(access, data=labelled(recorded))
        lie("digits_fp32", "zeros")
        (verdict, *_) = probing.round()
        assert verdict.outcome == "bad_output"
        assert "32 of 32 answers are wrong; row " in verdict.detail
        assert "'probabilities' is [0, 0, 0, 0, …], expected [" in verdict.detail


class TestBehaviour:
    CHECKS = ("batch", "permutation", "repeat", "distinct")

    @pytest.mark.parametrize("with_data", [True, False])
    def test_an_honest_model_passes(self, access, with_data) -> None:
        settings = {"data": labelled()} if with_data else {}
        probing = Probing(access, metamorphic=self.CHECKS, **settings)
        probing.round()
        assert probing.failing() == set()
        for check in self.CHECKS:
            assert probing.value("triton_golden_failing", check) == 0

    @pytest.mark.parametrize(
        ("fault", "caught"),
        [("stale", {"distinct"}), ("shifted_class", {"repeat"})],
    )
    def test_a_lie_is_caught_without_any_right_answer(
        self, access, lie, fault, caught
    ) -> None:
        probing = Probing(access, metamorphic=self.CHECKS)
        # Half of the rows are struck, others each time.
        lie("digits_fp32", fault, share=1.0 if fault == "stale" else 0.5)
        found = set()
        for _ in range(8):
            probing.round()
            found |= probing.failing()
        assert found & caught

    def test_wrong_inputs_are_refused_cleanly_or_answered_sanely(self, access) -> None:
        kinds = ("missing", "nan", "out_of_range", "shape", "dtype")
        for model in ("digits_fp32", "diabetes"):
            probing = Probing(access, model, corrupted=kinds)
            verdicts = probing.round()
            assert [v.outcome for v in verdicts] == ["ok"] * len(kinds)
            assert probing.failing() == set()

    def test_nan_and_infinity_for_a_large_value_is_no_sane_answer(
        self, access, lie
    ) -> None:
        lie("digits_fp32", "nan")
        probing = Probing(access, corrupted=["out_of_range"])
        probing.round()
        assert probing.failing() == {"corrupted"}


class TestCache:
    def test_an_answer_of_the_cache_is_seen_and_does_not_count(
        self, access, lie
    ) -> None:
        single = {"samples_per_request": 1, "data": labelled()}
        probing = Probing(access, "digits_cached", **single)
        for _ in range(60):
            probing.attempt()
        # The same samples again, by a probe that knows nothing of it.
        again = Probing(access, "digits_cached", **single)
        lie("digits_cached", "zeros")
        for _ in range(60):
            again.attempt()
        assert again.outcomes() == {"cached": 60}
        assert access.grpc.statistics(timeout_seconds=10)

    def test_batches_of_other_samples_each_time_reach_the_model(
        self, access, lie
    ) -> None:
        first = Probing(access, "digits_cached", data=labelled())
        first.round()
        lie("digits_cached", "zeros")
        first.round()
        assert "cached" not in first.outcomes()
        assert first.failing() == {"labels"}


class Load:
    """Requests to a model, one after another, until the block ends."""

    def __init__(self, grpc, per_second):
        self._client = GrpcClient(grpc)
        self._pause = 1 / per_second
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)
        self.sent = 0

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join(10)
        self._client.close()

    def _send(self):
        pixels = np.zeros((1, 64), np.float32)
        while not self._stop.wait(self._pause):
            request = InferRequest(
                "digits_fp32", "", "load", {"pixels": pixels}, {"pixels": "FP32"}
            )
            self._client.infer(request, timeout_seconds=10)
            self.sent += 1


def test_under_load_the_budget_is_never_exceeded(access, server) -> None:
    statistics = StatisticsSettings(cross_check=False).build(access)
    statistics.collect()
    share = 0.1
    probing = Probing(
        access,
        data=labelled(),
        samples_per_request=1,
        request_share=share,
        busy_share=0.3,
        idle_requests_per_second=0.02,
        idle_busy_ratio=0.001,
    )
    asked = refused = 0
    with Load(server.grpc, 100) as load:
        until = time.monotonic() + 6
        while time.monotonic() < until:
            statistics.collect()
            verdict = probing.attempt()
            asked += verdict is not None
            refused += verdict is None
            assert asked <= max(2, share * (asked + load.sent + 1))
            time.sleep(0.01)
    assert refused > 0, "it would have asked more"
    assert asked >= 5
    assert probing.value("triton_golden_budget_used_ratio", "requests") <= share
    assert probing.value("triton_golden_budget_used_ratio", "busy") <= 0.3
