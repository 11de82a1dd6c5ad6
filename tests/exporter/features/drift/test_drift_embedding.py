"""Texts that a scripted server embeds: slow rates, and an embedding model that is gone."""

from __future__ import annotations

import numpy as np
import pytest
import structlog
from fake_triton import FakeModel, FakeTensor, FakeTriton

EMBEDDER = FakeModel(
    "e",
    (FakeTensor("text", "BYTES", (1,)),),
    (FakeTensor("vector", "FP32", (4,)),),
    max_batch_size=64,
)
SIDE = "input_embeddings"


@pytest.fixture
def specs(bench, spec_of):
    """The model that is watched, and the one that embeds."""
    text = {"text": ("BYTES", (-1, 1))}
    embeds = spec_of(
        "e", inputs=text, outputs={"vector": ("FP32", (-1, 4))}, max_batch_size=64
    )
    with FakeTriton([EMBEDDER]) as fake:
        bench.serve(fake.grpc)
        yield spec_of(inputs=text), embeds


def entry(texts_per_second):
    embedding = {"model": "e", "tensor": "text", "texts_per_second": texts_per_second}
    return {
        "models": "m",
        "learn": {"rows": 500, "seconds": 1},
        "embedding": embedding,
    }


def ask(bench, number):
    texts = [[str(word).encode()] for word in bench.rng.integers(1 << 30, size=number)]
    bench.send({"text": np.array(texts, object)})


def learnt(bench):
    return bench.collector.subjects["m", SIDE].learner.rows


@pytest.mark.parametrize("rate", [0.01, 0.007, 1 / 61, 0.2])
def test_slow_rates_are_kept_and_not_exceeded(bench, specs, rate):
    bench.models(*specs)
    bench.watch(entry(rate))
    # Of each quarter of a minute, and of a pause that is not made up for.
    for pause in (*(15.0 for _ in range(160)), 40_000.0):
        ask(bench, 5)
        bench.collect(after=pause)
    most = 2400 * rate + max(60 * rate, 1.0)
    assert 0.7 * most <= learnt(bench) <= most


def test_what_is_learnt_survives_an_embedding_model_that_is_not_ready(bench, specs):
    bench.models(*specs)
    bench.watch(entry(100))
    ask(bench, 400)
    bench.collect(after=10)
    bench.models(specs[0])
    with structlog.testing.capture_logs() as logs:
        bench.collect(after=10)
    assert bench.state(side=SIDE) == "learning"
    assert bench.document(side=SIDE)["problems"] == ["embedding model 'e' is not ready"]
    (refused,) = [line for line in logs if line["event"] == "drift_reference_refused"]
    assert refused["keeps_old_reference"]
    bench.models(*specs)
    ask(bench, 200)
    bench.collect(after=10)
    assert bench.state(side=SIDE) == "watching"
    assert bench.document(side=SIDE)["problems"] == []
    assert bench.value("triton_drift_reference_rows", "m", SIDE) == 600
    assert "drift_learning_lost" not in [line["event"] for line in logs]


def test_a_long_text_is_cut_between_its_characters(bench, specs):
    bench.models(*specs)
    bench.watch(entry(100))
    texts = bench.collector.subjects["m", SIDE].embedded
    for shift in ("", "a", "bc"):
        long = (shift + "日本語" * 9_000).encode()
        bench.send({"text": np.array([[long]], object)})
    assert len(texts._held) == 3
    assert all(text.decode() for text in texts._held)


def test_without_the_embedding_model_nothing_is_learnt_and_the_reason_is_shown(
    bench, specs
):
    bench.models(specs[0])
    bench.watch(entry(100))
    assert bench.state(side=SIDE) == "refused"
    assert bench.document(side=SIDE)["problems"] == ["embedding model 'e' is not ready"]
    bench.models(*specs)
    bench.collect(after=1)
    assert bench.state(side=SIDE) == "learning"
