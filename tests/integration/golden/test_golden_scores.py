"""Golden probes of honest models: their quality, the cache, the budget under load."""

from __future__ import annotations

import time

import numpy as np
import pytest
from golden_probing import DEMO, Probing, labelled
from production import Production
from waiting import patience

from exporter.features.statistics.statistics_settings import StatisticsSettings
from exporter.triton.protocol_types import InferRequest

pytestmark = pytest.mark.triton


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
        assert probing.value("triton_output_confidence_ratio", "golden:digits") > 0.9
        shares = [
            s.value
            for s in probing.probe.samples()  # type: ignore[attr-defined]
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
        # 63 of 85, and 0.8633, as scikit-learn has them.
        assert probing.value(score, "accuracy") == pytest.approx(63 / 85)
        assert probing.value(score, "auc") == pytest.approx(0.8633, abs=1e-4)


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


class Load(Production):
    """Requests to a model, one after another, until the block ends."""

    def ask(self, user):  # noqa: ARG002 - there is one
        inputs = {"pixels": np.zeros((1, 64), np.float32)}
        request = InferRequest("digits_fp32", "", "load", inputs, {"pixels": "FP32"})
        self.client.infer(request, timeout_seconds=10)


def booked(access):
    """Triton's own books of the model: busy seconds of single rows, and of batches."""
    (entry,) = (
        e for e in access.grpc.statistics(timeout_seconds=10) if e.name == "digits_fp32"
    )
    seconds = {True: 0.0, False: 0.0}
    for batch in entry.batches:
        parts = (batch.compute_input, batch.compute_infer, batch.compute_output)
        seconds[batch.batch_size == 1] += 1e-9 * sum(part.ns for part in parts)
    return seconds[True], seconds[False]


def test_under_load_busy_time_stays_within_its_share_by_tritons_own_books(
    access, server, lie
) -> None:
    """Production asks single rows and we ask 32, so Triton's books tell them apart."""
    share, takes = 0.1, 0.005
    lie("digits_fp32", "slow", factor=1.0, delay_ms=1e3 * takes)
    statistics = StatisticsSettings(cross_check=False).build(access)
    statistics.collect()
    probing = Probing(
        access,
        data=labelled(),
        request_share=0.5,
        busy_share=share,
        idle_requests_per_second=0.02,
        idle_busy_ratio=0.0001,
    )
    theirs, ours = booked(access)
    asked = refused = 0
    with Load(server.grpc, pause_seconds=0.01) as load:
        began = time.monotonic()
        while asked < 10 or refused <= asked:
            assert time.monotonic() - began < patience(), (asked, refused, load.sent)
            statistics.collect()
            verdict = probing.attempt()
            asked += verdict is not None
            refused += verdict is None
            time.sleep(0.01)
    after = booked(access)
    theirs, ours = after[0] - theirs, after[1] - ours
    # Busy time is what held it back: the share of requests would have let it ask more.
    assert asked < 0.4 * (asked + load.sent)
    # The first tells what one takes, which nobody knew before.
    assert takes < ours <= share * (ours + theirs) + 2 * takes
    told = probing.value("triton_golden_budget_used_ratio", "busy")
    assert 0 < told <= share + 2 * takes / (ours + theirs)
