"""Two versions of one network under comparison: what is asked, told and loaded."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from pathlib import Path

from exporter.errors import TritonError
from exporter.triton.grpc import GrpcClient
from exporter.triton.model import InferRequest

DEMO = Path(__file__).parents[2] / "deploy" / "models"
COMMAND = str(Path(sys.executable).with_name("tritonwatch"))
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


class Load(contextlib.AbstractContextManager):
    """Production: requests to one model, one after the other, from a few threads."""

    def __init__(self, grpc, pixels, threads=2, version="1") -> None:
        self._client = GrpcClient(grpc)
        self._pixels, self._version = pixels, version
        self._stop = threading.Event()
        self.sent = 0
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._send) for _ in range(threads)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join(10)
        self._client.close()

    def _send(self):
        number = 0
        while not self._stop.is_set():
            number += 1
            row = self._pixels[number % len(self._pixels)][None]
            request = InferRequest(
                "digits",
                self._version,
                f"production-{number}",
                {"pixels": row},
                {"pixels": "FP32"},
            )
            with contextlib.suppress(TritonError):
                self._client.infer(request, timeout_seconds=5)
            with self._lock:
                self.sent += 1
            time.sleep(0.002)
