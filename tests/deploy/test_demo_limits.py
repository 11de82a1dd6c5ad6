"""The demo's limits: on its language model as documented, on accuracies without false alarms."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from exporter.demo.demo_traffic import RATE
from exporter.features.golden.golden_budget import loss_chart
from exporter.features.golden.golden_settings import GoldenSettings

DEPLOY = Path(__file__).parents[2] / "deploy"
DEMO = yaml.safe_load((DEPLOY / "demo.yaml").read_text("utf-8"))
CONFIG = (DEPLOY / "models" / "llm" / "config.pbtxt").read_text("utf-8")
LONGEST_PROMPT, TOKENS = 75, 16
"""Of the demo's clients, who give no `max_tokens`."""


def parameter(name):
    (found,) = re.findall(rf'key: "{name}" value: {{ string_value: "(\S+)"', CONFIG)
    return float(found)


def seconds(name):
    return parameter(name) / 1000


def test_the_demos_goodput_objective_holds_at_the_worst_documented_load_only():
    (traces,) = (one for one in DEMO["collectors"] if one["kind"] == "traces")
    (objective,) = (one for one in DEMO["slos"] if one["kind"] == "goodput")
    limits = traces["limits"][objective["limits"]]
    assert limits["models"] == objective["models"] == "llm"
    places = parameter("most_running")
    step = seconds("decode_ms") + seconds("decode_ms_per_request") * places
    prefill = (
        seconds("prefill_ms")
        + seconds("prefill_ms_per_token") * places * LONGEST_PROMPT
    )
    first = step + prefill
    assert 1.5 * first <= limits["first_response_seconds"]
    # Behind a full batch of its own kind a request waits for all of that batch's tokens.
    behind = first + prefill + (TOKENS - 1) * step
    assert limits["first_response_seconds"] < behind
    # Every arrival delays all others by the time to read its prompt.
    alone = seconds("prefill_ms") + seconds("prefill_ms_per_token") * LONGEST_PROMPT
    gap = step / (1 - RATE * alone)
    assert 2 * gap <= limits["mean_gap_seconds"]


def test_an_open_demo_shows_no_false_loss_of_accuracy_for_a_day():
    labelled = [
        GoldenSettings.model_validate(probe)
        for probe in DEMO["probes"]
        if "label" in probe.get("data", {})
    ]
    assert len(labelled) == 3
    for settings in labelled:
        samples = settings.idle_requests_per_second * settings.samples_per_request
        for accuracy in (0.7412, 0.971):
            days = loss_chart(settings, accuracy).arl / samples / 86_400
            assert days > 1, settings.name
