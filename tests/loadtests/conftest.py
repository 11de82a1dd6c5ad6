"""A real Triton with one model of each kind that a load can be put on."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from fake_triton import FakeModel, FakeTriton

from exporter.own_requests.payload import make_payload
from exporter.triton.embedded import EmbeddedTriton
from loadtests.payloads.bodies import Row, body_of
from loadtests.payloads.metadata import model_spec
from loadtests.plan import Entry, Mix
from loadtests.target import Target

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

ROOT = Path(__file__).parents[2]
MODELS = (
    "tests/data/models/double",
    "tests/data/models_load/total",
    "deploy/models/slow",
    "deploy/models/llm",
    "tests/data/models_streaming/stream",
)


@pytest.fixture(scope="session")
def models(tmp_path_factory) -> Path:
    """A repository of `double`, the sequence model `total`, `slow`, and of the decoupled
    `llm` and `stream`."""
    repository = tmp_path_factory.mktemp("load") / "models"
    for model in MODELS:
        shutil.copytree(ROOT / model, repository / Path(model).name)
    return repository


@pytest.fixture(scope="session")
def loaded(triton_environment: Path, models: Path) -> Generator[EmbeddedTriton]:
    """A server of these, for every test that only asks."""
    with EmbeddedTriton(models, environment=triton_environment) as server:
        yield server


@pytest.fixture
def fake() -> Generator[FakeTriton]:
    """A scripted server with the model `fake`: FP32[4] to FP32[4], in batches."""
    with FakeTriton([FakeModel()]) as server:
        yield server


def target_of(server: EmbeddedTriton | FakeTriton, protocol: str) -> Target:
    return Target(protocol, getattr(server, protocol))


def mix_of(target: Target, *models: str, variants: int = 4) -> Mix:
    """Requests from the models' own signatures, without asking for an answer."""
    rng = np.random.default_rng(1)
    entries = []
    for model in models:
        spec = model_spec(target, model)
        rows = (Row(make_payload(spec, {}, rng).inputs) for _ in range(variants))
        bodies = tuple(body_of(spec, row, target.protocol) for row in rows)
        entries.append(Entry(model, spec, bodies))
    return Mix(tuple(entries))


@pytest.fixture(name="target_of")
def target_of_fixture() -> Callable[..., Target]:
    return target_of


@pytest.fixture(name="mix_of")
def mix_of_fixture() -> Callable[..., Mix]:
    return mix_of
