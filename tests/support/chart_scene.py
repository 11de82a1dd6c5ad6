"""Signals under process control, read look by look from what a test exposes."""

from __future__ import annotations

import json
from types import SimpleNamespace

from accesses import access_to

from exporter import catalogue
from exporter.features.spc.spc_collector import ACKNOWLEDGE
from exporter.features.spc.spc_settings import SpcSettings
from exporter.samples import Sample
from exporter.taps.tap_route import TapRequest

SCORE = {"model": "m", "metric": "accuracy"}


class Scene:
    """Signals, what is exposed, and a clock that moves by five seconds a look."""

    def __init__(self, *signals, state_file=None, save_seconds=1):
        self.exposed = []
        self.now = 100.0
        access = access_to(
            SimpleNamespace(), clock=lambda: self.now, exposed=lambda: self.exposed
        )
        settings = SpcSettings.model_validate(
            {
                "signals": signals,
                "state_file": state_file,
                "save_seconds": save_seconds,
            }
        )
        self.collector = settings.build(access)
        self.page = []

    def look(self, *exposed):
        self.now += 5.0
        self.exposed = list(exposed)
        self.page = self.collector.collect()

    def value(self, name, *labels):
        found = [
            s.value
            for s in self.page
            if s.spec.name == name and set(labels) <= set(s.labels)
        ]
        assert len(found) < 2, found
        return found[0] if found else None

    def post(self, body):
        (route,) = self.collector.routes()  # type: ignore[attr-defined]
        assert route.path == ACKNOWLEDGE
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return route.answer(TapRequest(raw, {}))


def score(value, model="m", metric="accuracy"):
    return Sample(catalogue.GOLDEN_SCORE, value, (model, "1", "held_out", metric))


def signal(**changes):
    return {
        "name": "score",
        "metric": "triton_golden_score_ratio",
        "labels": SCORE,
        "baseline": {"mean": 0.97, "sigma": 0.01},
        "heal_samples": 5,
        **changes,
    }
