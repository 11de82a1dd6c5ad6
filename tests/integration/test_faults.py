"""The models that start to lie, on a real Triton that notices nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from exporter.errors import DeadlineError, ModelError, TritonError
from exporter.triton.embedded import EmbeddedTriton
from exporter.triton.faulty_model import Fault, set_fault, write_faulty_model
from exporter.triton.grpc import GrpcClient
from exporter.triton.protocol_types import InferRequest
from exporter.triton.tensors import decode

DEMO = Path(__file__).parents[2] / "deploy" / "models"


@pytest.fixture(scope="module")
def digits():
    with np.load(DEMO / "digits_fp32/data/held_out.npz") as data:
        return data["pixels"].astype(np.float32), data["label"]


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faulty") / "models"
    for name in ("digits_fp32", "digits_int8"):
        write_faulty_model(folder, name, source=DEMO / name)
    write_faulty_model(
        folder, "versions", source=DEMO / "digits_fp32", versions=("1", "2")
    )
    return folder


@pytest.fixture(scope="module")
def server(repository, triton_environment):
    with EmbeddedTriton(repository, environment=triton_environment) as started:
        yield started


@pytest.fixture
def ask(repository, server):
    client = GrpcClient(server.grpc)

    def infer(pixels, model="digits_fp32", version="", timeout=10.0, **parameters):
        request = InferRequest(
            model, version, "test", {"pixels": pixels}, {"pixels": "FP32"}, parameters
        )
        (output,) = client.infer(request, timeout_seconds=timeout).outputs
        return decode(output)

    infer.ready = client.repository_index  # type: ignore[attr-defined]
    yield infer
    client.close()
    for name in ("digits_fp32", "digits_int8"):
        set_fault(repository, name, Fault())


def test_each_lie_begins_when_it_is_told_to_and_ends_so(ask, repository, digits):
    pixels, labels = digits
    honest = ask(pixels[:50])
    assert (honest.argmax(1) == labels[:50]).mean() > 0.9
    wrong = {
        "zeros": np.zeros_like(honest),
        "nan": np.full_like(honest, np.nan),
        "shifted_class": np.roll(honest, 1, axis=1),
    }
    for fault, expected in wrong.items():
        set_fault(repository, "digits_fp32", Fault(fault, after_requests=2))
        for _ in range(2):
            np.testing.assert_array_equal(ask(pixels[:50]), honest)
        np.testing.assert_array_equal(ask(pixels[:50]), expected)
    set_fault(repository, "digits_fp32", Fault())
    np.testing.assert_array_equal(ask(pixels[:50]), honest)
    assert all(entry.ready for entry in ask.ready(timeout_seconds=5))


def test_a_stale_model_repeats_its_first_answer_to_everything(ask, repository, digits):
    pixels, _ = digits
    honest = ask(pixels[:4])
    set_fault(repository, "digits_fp32", Fault("stale"))
    first = ask(pixels[3:4])
    np.testing.assert_allclose(first, honest[3:4], rtol=1e-5)
    np.testing.assert_array_equal(ask(pixels[:4]), np.repeat(first, 4, axis=0))


def test_a_share_of_the_rows_is_struck(ask, repository, digits):
    pixels, _ = digits
    honest = np.concatenate([ask(pixels[i : i + 64]) for i in range(0, 448, 64)])
    set_fault(repository, "digits_fp32", Fault("zeros", share=0.1, seed=7))
    struck = np.concatenate([ask(pixels[i : i + 64]) for i in range(0, 448, 64)])
    # Seven batches of the same seed: 44.8 expected, three standard deviations are 19.
    assert 20 < (struck == 0).all(axis=1).sum() < 70
    sound = (struck != 0).any(axis=1)
    np.testing.assert_array_equal(struck[sound], honest[sound])


def test_a_fault_nobody_knows_is_an_error_of_that_request(ask, digits):
    with pytest.raises(ModelError, match="want one of"):
        ask(digits[0][:1], fault="dragons")


# The last one: its model stays dead.
def test_hang_error_and_crash_give_no_answer_while_the_model_is_ready(
    ask, repository, digits
):
    pixels, _ = digits
    with pytest.raises(ModelError, match="asked to fail"):
        ask(pixels[:1], fault="error")
    set_fault(repository, "digits_int8", Fault("hang", hang_seconds=3))
    with pytest.raises(DeadlineError):
        ask(pixels[:1], "digits_int8", timeout=0.5)
    with pytest.raises(TritonError):
        ask(pixels[:1], fault="crash", timeout=5)
    with pytest.raises(TritonError):
        ask(pixels[:1], timeout=5)
    assert all(entry.ready for entry in ask.ready(timeout_seconds=5))
