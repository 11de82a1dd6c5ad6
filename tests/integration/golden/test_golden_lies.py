"""Golden probes on a real Triton whose models begin to lie while it calls them ready."""

from __future__ import annotations

import pytest
from golden_probing import Probing, labelled

pytestmark = pytest.mark.triton


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

    def test_what_is_wrong_is_said_until_the_first_honest_round(
        self, access, recorded, lie
    ) -> None:
        probing = Probing(access, data=labelled(recorded))
        lie("digits_fp32", "zeros")
        (verdict, *_) = probing.round()
        assert verdict.outcome == "bad_output"
        assert "32 of 32 answers are wrong; row " in verdict.detail
        assert "'probabilities' is [0, 0, 0, 0, …], expected [" in verdict.detail
        assert "expected" in probing.failing()
        lie("digits_fp32")
        probing.round()
        assert probing.failing() == set()
        assert probing.value("triton_golden_score_ratio", "match") == 1
