"""Free text of mirrored requests, watched by numbers; the text itself is nowhere."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from exporter.triton.protocol_types import TensorSpec

CANARY = "canary4711"


@pytest.fixture
def entry(bench, spec_of):
    inputs = {"text_input": ("BYTES", (1,)), "temperature": ("FP32", (1,))}
    bench.models(spec_of(inputs=inputs, max_batch_size=0))
    return {
        "learn": {"rows": 1000, "seconds": 1},
        "window": {"rows": 100, "seconds": 10},
        "text": ["text_input"],
    }


def ask(bench, number, *, words=10, start="why"):
    """One request of one prompt each, as a model without batches takes it."""
    for _ in range(number):
        length = bench.rng.integers(words // 2, words)
        text = " ".join(
            [start, CANARY, *map(str, bench.rng.integers(1 << 30, size=length))]
        )
        bench.send(
            {
                "text_input": np.array([text.encode()], object),
                "temperature": bench.rng.random(1, np.float32),
            }
        )


def watching(bench, entry):
    bench.watch(entry)
    ask(bench, 1000)
    bench.collect(after=5)
    assert bench.state() == "watching"


def alarm(bench, name):
    return bench.value("triton_feature_drift_alarm", "m", f"text_input.{name}")


def test_prompts_that_become_longer_alarm_and_the_same_ones_do_not(bench, entry):
    watching(bench, entry)
    for _ in range(4):
        ask(bench, 200)
        bench.collect(after=10)
        assert alarm(bench, "words") == 0
    assert bench.violations() == {}
    for _ in range(3):
        ask(bench, 200, words=16)
        bench.collect(after=10)
    assert alarm(bench, "words") == 1
    assert bench.value("triton_feature_drift_alarm", "m", "temperature") == 0


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("refusal", "I'm sorry, I can't"),
        ("cyrillic_letters_ratio", "Почему ответ такой медленный"),
        ("accented_letters_ratio", "Warum wächst die große Schlange so übermäßig"),
        ("repeated_words_ratio", "why why why why why why"),
    ],
)
def test_refusals_another_language_and_repetition_alarm(bench, entry, name, start):
    watching(bench, entry)
    for _ in range(3):
        ask(bench, 200, start=start)
        bench.collect(after=10)
    assert alarm(bench, name) == 1


def test_ordinary_prompts_alarm_no_more_often_than_allowed(bench, spec_of):
    """Two languages, rare refusals and repetitions, and lengths of a long tail."""
    bench.models(spec_of(inputs={"text_input": ("BYTES", (-1, 1))}))
    often = {"window": {"rows": 100, "seconds": 10}, "false_alarms_per_month": 1000}
    bench.watch(
        {"learn": {"rows": 2000, "seconds": 1}, "text": ["text_input"], **often}
    )
    starts = ["why is"] * 95 + [
        "почему так",
        "I'm sorry, I can't",
        "why why why",
        "1 2 {}",
    ]

    def prompts(number):
        lengths = bench.rng.lognormal(2, 0.8, number).astype(int)
        return {
            "text_input": np.array(
                [
                    [" ".join([bench.rng.choice(starts), *["word"] * length]).encode()]
                    for length in lengths
                ],
                object,
            )
        }

    bench.send(prompts(2000))
    bench.collect(after=5)
    assert bench.state() == "watching"
    alarms = 0
    for _ in range(300):
        bench.window(prompts(100))
        (alarm,) = bench.all("triton_model_drift_alarm")
        alarms += alarm.value
    # One alarm in 259 windows is allowed, and may last.
    assert alarms < 7


def test_no_text_is_kept_or_shown(bench, entry, tmp_path):
    watching(bench, {**entry, "state": tmp_path / "state", "export_bins": ["*"]})
    ask(bench, 200)
    bench.collect(after=10)
    bench.collector.close()
    kept = [f for f in (tmp_path / "state").rglob("*") if f.is_file()]
    assert kept
    assert not [f for f in kept if CANARY.encode() in f.read_bytes()]
    assert CANARY not in json.dumps(bench.document(), default=str)
    assert CANARY not in repr(bench.samples)


def test_numbers_in_the_place_of_a_text_are_a_violation(bench, entry):
    watching(bench, entry)
    number = np.zeros(1, np.float32)
    bench.window({"text_input": number, "temperature": number})
    assert bench.violations()


@pytest.mark.parametrize(
    ("inputs", "found"),
    [
        ({"x": ("BYTES", (1,))}, "tensor 'text_input' is absent: the model has x"),
        ({"text_input": ("FP32", (1,))}, "tensor 'text_input' is FP32; text is BYTES"),
        ({"text_input": ("BYTES", (2,))}, "tensor 'text_input' has 2 texts in a row"),
    ],
)
def test_what_is_no_text_is_refused_with_the_reason(
    bench, entry, spec_of, inputs, found
):
    bench.models(spec_of(inputs=inputs, max_batch_size=0))
    bench.watch(entry)
    assert bench.state() == "refused"
    (problem,) = bench.document()["problems"]
    assert problem.startswith(found)


def test_what_a_request_may_leave_out_is_not_watched_unless_it_is_named(bench, spec_of):
    spec = spec_of(inputs={"text_input": ("BYTES", (1,))}, max_batch_size=0)
    optional = TensorSpec("stream", "BOOL", (1,), optional=True)
    bench.models(replace(spec, inputs=(*spec.inputs, optional)))
    bench.watch({"learn": {"rows": 500, "seconds": 1}, "text": ["text_input"]})
    prompt = np.array([[b"why not"]], object)
    for _ in range(500):
        bench.send({"text_input": prompt})
    bench.collect(after=5)
    assert bench.state() == "watching"


class TestAnOpenAiServer:
    """Its texts have names of their own, and its answers the reason of their end."""

    @pytest.fixture
    def watched(self, bench, spec_of):
        bench.models(replace(spec_of(), backend="openai"))
        bench.watch(
            {
                "side": "outputs",
                "learn": {"rows": 1000, "seconds": 1},
                "window": {"rows": 100, "seconds": 10},
                "text": ["text_output"],
            }
        )
        self.answer(bench, 1000)
        bench.collect(after=5)
        assert bench.state(side="outputs") == "watching"
        return bench

    def answer(self, bench, number, reason=b"stop"):
        for word in bench.rng.integers(1 << 30, size=number):
            text = np.array([[f"answer {word}".encode()]], object)
            ended = np.array([[reason if word % 10 else b"length"]], object)
            bench.send(outputs={"text_output": text, "finish_reason": ended})

    def test_answers_that_end_for_another_reason_alarm(self, watched):
        for _ in range(3):
            self.answer(watched, 200)
            watched.collect(after=10)
        (quiet,) = watched.all("triton_model_drift_alarm")
        assert quiet.value == 0
        for _ in range(3):
            self.answer(watched, 200, reason=b"length")
            watched.collect(after=10)
        alarms = {
            s.labels[1]: s.value for s in watched.all("triton_feature_drift_alarm")
        }
        assert {name for name, value in alarms.items() if value} == {"finish_reason"}
