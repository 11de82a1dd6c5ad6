"""A golden probe of one model, driven by hand and not by the clock."""

from __future__ import annotations

import time
from pathlib import Path

from waiting import patience

from exporter.cli import main
from exporter.features.golden.golden_settings import GoldenSettings

DEMO = Path(__file__).parents[2] / "deploy" / "models"
HELD_OUT = DEMO / "digits_fp32/data/held_out.npz"


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
        deadline = time.monotonic() + patience()
        while (self.value("triton_golden_rounds_total") or 0) == before:
            verdicts.append(self.attempt())
            assert verdicts[-1] is not None, "over the budget"
            assert time.monotonic() < deadline
        return verdicts

    def value(self, name, *labels):
        found = [
            sample.value
            for sample in self.probe.samples()  # type: ignore[attr-defined]
            if sample.spec.name == name and set(labels) <= set(sample.labels)
        ]
        assert len(found) < 2, found
        return found[0] if found else None

    def outcomes(self):
        return {
            sample.labels[-1]: sample.value
            for sample in self.probe.samples()  # type: ignore[attr-defined]
            if sample.spec.name == "triton_golden_samples_total" and sample.value
        }

    def failing(self):
        return {
            sample.labels[-1]
            for sample in self.probe.samples()  # type: ignore[attr-defined]
            if sample.spec.name == "triton_golden_failing" and sample.value
        }


def record(server, output, *options):
    """`tritonwatch golden record` of the digits; its exit status."""
    arguments = ["golden", "record", "--model", "digits_fp32", "--grpc", server.grpc]
    arguments += ["--data", str(HELD_OUT), "--output", str(output), *options]
    return main(arguments)


def labelled(file=HELD_OUT, **more):
    return {"file": str(file), "label": "label", "name": "digits", **more}
