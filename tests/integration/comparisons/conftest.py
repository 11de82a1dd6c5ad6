"""One server for the comparisons of a module, its models sound before each test."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest
from compared_versions import DEMO, HELD_OUT
from small_models import COUNTS, config, write_model
from streaming_models import STREAM

from exporter.triton.embedded import EmbeddedTriton
from exporter.triton.faulty_model import Fault, set_fault, write_faulty_model

if TYPE_CHECKING:
    from collections.abc import Generator

MUTE = """
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        return [pb.InferenceResponse([]) for _ in requests]
"""
"""Answers without its output, which Triton counts as a success."""


@pytest.fixture(scope="module")
def pixels():
    with np.load(HELD_OUT) as data:
        return data["pixels"].astype(np.float32)


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """One network as two versions of a model, and others that will misbehave."""
    folder = tmp_path_factory.mktemp("compared") / "models"
    write_faulty_model(
        folder, "digits", source=DEMO / "digits_fp32", versions=("1", "2")
    )
    for name in ("digits_int8", "hangs", "crashes", "errs"):
        write_faulty_model(folder, name, source=DEMO / "digits_int8")
    shutil.copytree(DEMO / "diabetes", folder / "diabetes")
    shutil.copytree(STREAM, folder / "stream")
    write_model(folder, "counts", config(), COUNTS)
    write_model(folder, "mute", config(), MUTE)
    return folder


@pytest.fixture(scope="module")
def server(repository, triton_environment):
    with EmbeddedTriton(repository, environment=triton_environment) as triton:
        yield triton


@pytest.fixture(autouse=True)
def _sound_again(repository) -> Generator[None]:
    yield
    set_fault(repository, "digits", Fault(), version="2")
    set_fault(repository, "digits_int8", Fault())


@pytest.fixture
def compare(server, settings, start_sidecar):
    def start(*comparisons, **changes):
        config = settings(server, comparisons=list(comparisons), **changes)
        config["probes"] = []
        config["power"] = None
        return start_sidecar(config)

    return start
