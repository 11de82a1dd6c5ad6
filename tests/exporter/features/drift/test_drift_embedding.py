"""Texts that a scripted server embeds: slow rates, and an embedding model that is gone."""

from __future__ import annotations

import numpy as np
import pytest
import structlog
from fake_triton import FakeModel, FakeTensor, FakeTriton

SIDE = "input_embeddings"


class Embedder:
    """Vectors of random weights and the letters of a text, in the server `fake`."""

    def __init__(self):
        self.weights = np.random.default_rng(3).normal(size=(10, 4))
        self.noise = 0.0
        self.model = FakeModel(
            "e",
            (FakeTensor("text", "BYTES", (1,)),),
            (FakeTensor("vector", "FP32", (4,)),),
            max_batch_size=64,
            answer=self.answer,
        )

    def answer(self, inputs):
        digits = [np.frombuffer(text, np.uint8) % 10 for text in inputs["text"].ravel()]
        counts = np.array([np.bincount(d, minlength=10) for d in digits])
        vectors = counts @ self.weights
        noise = np.random.default_rng(4).normal(size=vectors.shape)
        return {"vector": (vectors * (1 + self.noise * noise)).astype(np.float32)}

    def update(self):
        self.weights = np.random.default_rng(5).normal(size=(10, 4))


@pytest.fixture
def embedder():
    return Embedder()


@pytest.fixture
def specs(bench, spec_of, embedder):
    """The model that is watched, and the one that embeds."""
    text = {"text": ("BYTES", (-1, 1))}
    embeds = spec_of(
        "e", inputs=text, outputs={"vector": ("FP32", (-1, 4))}, max_batch_size=64
    )
    with FakeTriton([embedder.model]) as fake:
        bench.serve(fake.grpc)
        yield spec_of(inputs=text), embeds


def entry(texts_per_second, tensor="text"):
    embedding = {"model": "e", "tensor": tensor, "texts_per_second": texts_per_second}
    return {
        "window": {"rows": 100, "seconds": 10},
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


def test_of_a_tensor_that_the_model_has_not_nothing_is_learnt(bench, specs):
    bench.models(*specs)
    bench.watch(entry(100, tensor="picture"))
    assert bench.state(side=SIDE) == "refused"
    told = "the model has no tensor 'picture' of text"
    assert bench.document(side=SIDE)["problems"] == [told]


def ask_and_collect(bench, number):
    ask(bench, number)
    bench.collect(after=60)


@pytest.mark.parametrize("when", ["learning", "watching", "down", "without values"])
def test_an_updated_embedding_model_is_no_drift(bench, specs, embedder, tmp_path, when):
    bench.models(*specs)
    wanted = entry(100) | {"state": str(tmp_path / "state")}
    bench.watch(wanted)
    embedder.noise = np.nan if when == "without values" else 0.0
    ask_and_collect(bench, 1)
    embedder.noise = 0.0
    ask_and_collect(bench, 400)
    if when != "learning":
        ask_and_collect(bench, 200)
        assert bench.state(side=SIDE) == "watching"
    if when == "down":
        bench.collector.close()
        bench.watch(wanted)
        assert bench.state(side=SIDE) == "watching"
    embedder.update()
    with structlog.testing.capture_logs() as logs:
        ask_and_collect(bench, 300)
    assert "drift_embedding_model_changed" in [line["event"] for line in logs]
    ask_and_collect(bench, 0)
    assert bench.state(side=SIDE) == "learning"
    ask_and_collect(bench, 510)
    assert bench.state(side=SIDE) == "watching"
    for _ in range(10):
        ask_and_collect(bench, 300)
        assert bench.value("triton_model_drift_alarm", "m") == 0
    bench.collector.close()
    bench.watch(wanted)
    ask_and_collect(bench, 300)
    assert bench.state(side=SIDE) == "watching"
    assert bench.value("triton_drift_reference_rows", "m", SIDE) == 510


def test_the_noise_of_an_embedding_model_is_no_update(bench, specs, embedder):
    bench.models(*specs)
    bench.watch(entry(100))
    for embedder.noise in (0.0, 0.01, -0.01, 0.0):
        ask_and_collect(bench, 300)
    assert bench.state(side=SIDE) == "watching"
