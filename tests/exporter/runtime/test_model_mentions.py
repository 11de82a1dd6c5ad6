"""Settings that name models or inputs that the server does not have."""

from __future__ import annotations

import json

import pytest
import structlog
from fake_triton import FakeModel, FakeTriton
from surfaces import serving

from exporter.access.inventory import Inventory
from exporter.config.configuration import parse
from exporter.runtime.model_mentions import MentionLog, misfits
from exporter.triton.protocol_types import IndexEntry, ModelSpec, TensorSpec


def server_of(**models: list[str]) -> Inventory:
    specs = {
        (name, "1"): ModelSpec(
            name, "1", tuple(TensorSpec(i, "FP32", (1,)) for i in inputs), ()
        )
        for name, inputs in models.items()
    }
    index = tuple(IndexEntry(name, "1", "READY") for name in models)
    return Inventory(up=True, ready=True, index=index, models=specs)


def mentions_of(**sections):
    return list(parse(json.dumps(sections).encode(), "FILE", {}).model_mentions())


def overriding(model: str, *inputs: str):
    override = {"inputs": {name: {"shape": [1]} for name in inputs}}
    return mentions_of(probes=[{"kind": "synthetic", "overrides": {model: override}}])


def logged(*looks):
    log = MentionLog()
    with structlog.testing.capture_logs() as logs:
        for mentions, inventory in looks:
            log.log_changes(mentions, inventory)
    return logs


RESNET = server_of(resnet=["image"], bert=["ids"])


def test_an_override_of_no_model_is_logged_once_with_what_the_server_has():
    mentions = overriding("resnt")
    assert logged((mentions, RESNET), (mentions, RESNET)) == [
        {
            "event": "setting_matches_no_model",
            "log_level": "warning",
            "setting": "probes.synthetic.overrides.resnt",
            "model": "resnt",
            "models": "bert, resnet",
            "did_you_mean": "resnet",
        }
    ]


def test_the_warning_is_withdrawn_when_the_model_appears_and_comes_back_when_it_goes():
    mentions, both = overriding("late"), server_of(resnet=["image"], late=["x"])
    looks = [(mentions, inventory) for inventory in (RESNET, both, both, RESNET)]
    assert [(entry["event"], entry["setting"]) for entry in logged(*looks)] == [
        ("setting_matches_no_model", "probes.synthetic.overrides.late"),
        ("setting_fits_again", "probes.synthetic.overrides.late"),
        ("setting_matches_no_model", "probes.synthetic.overrides.late"),
    ]


def test_a_server_that_is_down_or_lists_nothing_shows_nothing_wrong():
    mentions = overriding("resnt")
    down = Inventory(models=RESNET.models)
    assert logged((mentions, down), (mentions, Inventory(up=True))) == []
    events = [entry["event"] for entry in logged((mentions, RESNET), (mentions, down))]
    assert events == ["setting_matches_no_model"], "nor that it fits again"


def test_an_unknown_input_is_logged_with_those_that_the_model_has():
    [entry] = logged((overriding("resnet", "imgae", "image"), RESNET))
    assert entry == {
        "event": "setting_names_unknown_input",
        "log_level": "warning",
        "setting": "probes.synthetic.overrides.resnet.inputs.imgae",
        "model": "resnet",
        "version": "1",
        "inputs": "image",
        "did_you_mean": "image",
    }


def test_thousands_of_wrong_names_are_a_few_lines():
    overrides = {f"nothing-{n}": {} for n in range(2000)}
    mentions = mentions_of(probes=[{"kind": "synthetic", "overrides": overrides}])
    logs = logged((mentions, RESNET))
    assert len(logs) == 21
    assert logs[-1] == {
        "event": "more_settings_match_nothing",
        "log_level": "warning",
        "number": 1980,
    }


def test_every_setting_that_names_models_is_compared_with_the_server():
    mentions = mentions_of(
        models={"include": ["resnet", "a*"]},
        probes=[
            {"kind": "synthetic", "name": "mine", "models": {"include": ["b?"]}},
        ],
        collectors=[
            {"kind": "mirror", "overrides": {"c": {"samples_per_second": 1}}},
            {"kind": "cold_start", "overrides": {"d": {}, "bert": {"jds": {}}}},
            {"kind": "outputs", "models": {"include": ["e"]}, "outputs": {"f": "x"}},
        ],
        drift=[{"models": "g*", "learn": {}}],
        slos=[
            {
                "kind": "availability",
                "name": "up",
                "objective_ratio": 0.9,
                "models": "h",
            }
        ],
        cost={"models": {"i": {"flops_per_inference": 1}}},
        power={"model_gpus": {"j": [0]}},
    )
    places = {misfit.place for misfit in misfits(mentions, RESNET)}
    assert places == {
        "models.include.a*",
        "probes.mine.models.include.b?",
        "collectors.mirror.overrides.c",
        "collectors.cold_start.overrides.d",
        "collectors.cold_start.overrides.bert.jds",
        "collectors.outputs.models.include.e",
        "collectors.outputs.outputs.f",
        "drift.0.models.g*",
        "slos.up.models.h",
        "cost.models.i",
        "power.model_gpus.j",
    }


def test_a_configuration_without_names_fits_every_server():
    assert misfits(mentions_of(), RESNET) == []


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ({"inputs": {"INPUT9": {"shape": [1]}}}, "INPUT9"),
        ({"inputs": {"INPUT0": {"shape": [1, 2, 3]}}}, "shape [1, 2, 3]"),
        ({"inputs": {"INPUT0": {"values": ["no number"]}}}, "datatype FP32"),
        ({"parameters": {"priority": -1}}, "'priority'"),
    ],
    ids=["unknown input", "shape", "values", "parameter"],
)
async def test_an_override_that_does_not_fit_says_nothing_about_the_model(
    override, told
):
    probe = {
        "kind": "synthetic",
        "interval_seconds": 0.5,
        "overrides": {"m": override},
    }
    with FakeTriton([FakeModel("m")]) as fake:
        async with serving(fake, probes=[probe]) as served:
            answer = await served.until(
                lambda a: '"outcome": "configuration"' in a.text, "/api/v1/status"
            )
            status = json.loads(answer.text)
            assert status["models"][0]["state"] == "UNKNOWN"
            assert told in " ".join(f["text"] for f in status["findings"])
            page = (await served.ask("/metrics")).text
    assert "triton_model_serving{" not in page
    assert "triton_probe_success{" not in page
    assert 'outcome="configuration"' in page
    assert not fake.received("infer")


async def test_an_override_of_an_unknown_input_is_logged():
    overrides = {"m": {"inputs": {"INPUT9": {"shape": [1]}}}}
    probe = {"kind": "synthetic", "interval_seconds": 0.5, "overrides": overrides}
    with FakeTriton([FakeModel("m")]) as fake, structlog.testing.capture_logs() as logs:
        async with serving(fake, probes=[probe]) as served:
            await served.until(lambda _: any("setting" in entry for entry in logs))
    [entry] = [entry for entry in logs if "setting" in entry]
    assert entry["event"] == "setting_names_unknown_input"
