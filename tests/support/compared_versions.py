"""Two versions of one network under comparison: what is asked, told and loaded."""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path

from production import Production

from exporter.errors import TritonError
from exporter.triton.protocol_types import InferRequest

DEMO = Path(__file__).parents[2] / "deploy" / "models"
HELD_OUT = DEMO / "digits_fp32/data/held_out.npz"
EFFECT, VERDICT = "triton_comparison_effect", "triton_comparison_verdict"
PAIRS = "triton_comparison_pairs_total"
USED = "triton_comparison_budget_used_ratio"


def comparison(**changes):
    return {
        "name": "test",
        "champion": "digits:1",
        "challenger": "digits:2",
        "inputs": {"source": "golden", "file": str(HELD_OUT)},
        "budget": {"idle_pairs_per_second": 200, "max_pairs_per_second": 200},
        # Wide ones, which a few hundred pairs can decide.
        "margins": {"agreement": 0.1, "output_distance": 0.2, "success": 0.1},
        **changes,
    }


def verdict(page, metric, name="test"):
    found = page.all(VERDICT, comparison=name, metric=metric)
    return next((labels["verdict"] for labels, value in found if value == 1), None)


def decided(metric, *wanted, name="test"):
    return lambda page: verdict(page, metric, name) in wanted


class Load(Production):
    """Production: requests to one model, one after the other, from two users."""

    def __init__(self, grpc, pixels, version="1") -> None:
        super().__init__(grpc, pause_seconds=0.002, users=2)
        self._pixels, self._version = pixels, version
        self._numbers = itertools.count(1)

    def ask(self, user):  # noqa: ARG002 - both ask alike
        number = next(self._numbers)
        row = self._pixels[number % len(self._pixels)][None]
        request = InferRequest(
            "digits",
            self._version,
            f"production-{number}",
            {"pixels": row},
            {"pixels": "FP32"},
        )
        with contextlib.suppress(TritonError):
            self.client.infer(request, timeout_seconds=5)
