"""Whatever has a `kind` is in its union, and keeps the rules of its package."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import accesses
import numpy as np
import pytest
from fake_triton import (
    INTERNAL,
    INVALID_ARGUMENT,
    UNAVAILABLE,
    Body,
    Dropped,
    EmptyTensor,
    FakeModel,
    FakeTriton,
    Filled,
    Garbage,
    HalfAnswer,
    Hung,
    MissingOutput,
    ShortTensor,
    WrongDtype,
    WrongShape,
)
from pydantic import BaseModel
from waiting import patience

import exporter.features
import exporter.features.energy.sources
import exporter.taps
import loadtests.profiles
from exporter.access.collector_base import CollectorSettings
from exporter.access.inventory import Inventory
from exporter.access.probe_base import ProbeSettings
from exporter.catalogue import CATALOGUE
from exporter.catalogue.probe_outcomes import OUTCOMES
from exporter.config.configuration import load
from exporter.config.kinds import AnyCollector, AnyProbe
from exporter.errors import PartialResultError, SourceError
from exporter.features.energy.sources import AnySource
from exporter.features.slo.objectives import AnyObjective
from exporter.own_requests.payload import make_payload
from exporter.triton.grpc import GrpcClient
from exporter.triton.http import HttpClient
from loadtests.profiles import AnyProfile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from exporter.access.collector_base import Access

TESTS = Path(__file__).parents[1]
COLLECTORS = get_args(get_args(AnyCollector)[0])
PROBES = get_args(get_args(AnyProbe)[0])
SOURCES = get_args(get_args(AnySource)[0])
OBJECTIVES = get_args(get_args(AnyObjective)[0])
EXAMPLES = TESTS / "data" / "config" / "valid"


def models_in(value) -> Iterator[BaseModel]:
    if isinstance(value, BaseModel):
        yield value
        value = vars(value).values()
    elif isinstance(value, dict):
        value = value.values()
    if not isinstance(value, str) and isinstance(value, Iterable):
        for part in value:
            yield from models_in(part)


@functools.cache
def examples() -> dict[type, BaseModel]:
    """One instance of every kind of settings that the example files name."""
    environment = {"SECRET": "s", "PORT": "8013"}
    return {
        type(model): model
        for file in sorted(EXAMPLES.glob("*.yaml"))
        for model in models_in(load(file, environment))
        if "kind" in model.model_fields_set
    }


def required(settings) -> dict[str, object]:
    """The values of settings without a default, from the example files."""
    names = [n for n, field in settings.model_fields.items() if field.is_required()]
    return {name: getattr(examples()[settings], name) for name in names}


def kinds_in(packages, base) -> set[type]:
    found = set()
    for module in (
        module
        for package in packages
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    ):
        for value in vars(importlib.import_module(module.name)).values():
            if (
                isinstance(value, type)
                and issubclass(value, base)
                and "kind" in value.model_fields  # type: ignore[attr-defined]
                and value.__module__ == module.name
            ):
                found.add(value)
    return found


@pytest.mark.parametrize(
    ("packages", "base", "members"),
    [
        ((exporter.features, exporter.taps), CollectorSettings, COLLECTORS),
        ((exporter.features,), ProbeSettings, PROBES),
        (
            (exporter.features.energy.sources,),
            BaseModel,
            SOURCES,
        ),
        ((loadtests.profiles,), BaseModel, get_args(get_args(AnyProfile)[0])),
    ],
    ids=["collectors", "probes", "sources of power", "profiles"],
)
def test_everything_with_a_kind_is_in_the_union(packages, base, members) -> None:
    assert kinds_in(packages, base) == set(members)


@pytest.mark.parametrize(
    "settings",
    [*COLLECTORS, *PROBES, *SOURCES, *OBJECTIVES],
    ids=lambda settings: settings.__name__,
)
def test_the_example_configurations_name_every_kind(settings) -> None:
    assert settings in examples(), f"add an example to {EXAMPLES / 'everything.yaml'}"


def access_to(server) -> Access:
    return accesses.access_to(
        GrpcClient(server.grpc),
        http=HttpClient(server.http),
        metrics=HttpClient(server.metrics),
    )


DEAD, DEAD_STUB, HANGING = "dead", "dead stub", "is_ready() hangs"
# What readiness means differs: from 2.65 on a backend is asked, from 2.67 on it may hang.
VERSIONS = ("2.51.0", "2.65.0", "2.70.0")
LIES = [
    *((None, version) for version in VERSIONS),
    *((DEAD_STUB, version) for version in VERSIONS),
    (HANGING, "2.70.0"),
    *((lie, "2.51.0") for lie in (DEAD, Garbage(), HalfAnswer(), Hung())),
]


@pytest.mark.parametrize("settings", COLLECTORS, ids=lambda s: s.__name__)
@pytest.mark.parametrize(("lie", "version"), LIES, ids=str)
def test_a_collector_ends_with_samples_or_a_source_error(
    settings, lie, version
) -> None:
    with FakeTriton([FakeModel("m")], version=version) as fake:
        if lie == DEAD:
            fake.stop()
        elif lie == DEAD_STUB:
            fake.kill_stub("m")
        elif lie == HANGING:
            fake.hang_is_ready("m")
        elif lie is not None:
            fake.on("any").reply(lie)
        access = access_to(fake)
        chosen = settings(**required(settings), deadline_seconds=4.0)
        collector = chosen.build(access)
        started = time.monotonic()
        try:
            samples = collector.collect()
        except (SourceError, PartialResultError) as error:
            samples = getattr(error, "samples", ())
        took = time.monotonic() - started
        assert took <= patience(2 * chosen.deadline_seconds)
        for sample in samples:
            assert sample.spec in CATALOGUE
            assert len(sample.labels) == len(sample.spec.labels)


ANSWERS = [
    (None, {"ok"}),
    (DEAD, {"unavailable"}),
    (DEAD_STUB, {"model_error"}),
    (INTERNAL, {"model_error"}),
    (INVALID_ARGUMENT, {"invalid", "configuration"}),
    (UNAVAILABLE, {"unavailable"}),
    (Dropped(), {"unavailable"}),
    (Garbage(), {"bad_output", "unavailable", "model_error"}),
    (HalfAnswer(), {"bad_output", "unavailable", "model_error"}),
    (Body(b"{}"), {"bad_output"}),
    (EmptyTensor(), {"bad_output"}),
    (ShortTensor(), {"bad_output"}),
    (MissingOutput(), {"bad_output"}),
    (WrongDtype(), {"bad_output"}),
    (WrongShape(), {"bad_output"}),
    (Filled(float("nan")), {"bad_output"}),
    (Filled(float("inf")), {"bad_output"}),
    (Hung(), {"timeout"}),
]
"""Possible answers of a server, and the outcomes that are right."""


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("settings", PROBES, ids=lambda s: s.__name__)
@pytest.mark.parametrize(
    ("lie", "outcomes"), ANSWERS, ids=[str(answer) for answer, _ in ANSWERS]
)
def test_a_probe_gives_a_verdict_with_its_reason(
    settings, lie, outcomes, version, tmp_path
) -> None:
    with FakeTriton([FakeModel("m")], version=version) as fake:
        access = access_to(fake)
        spec = access.grpc.model_spec("m", "1", timeout_seconds=5)
        access.board.publish(Inventory(up=True, ready=True, models={("m", "1"): spec}))
        if lie == DEAD:
            fake.stop()
        elif lie == DEAD_STUB:
            fake.kill_stub("m")
        elif lie is not None:
            fake.on("infer").reply(lie)
        needed = required(settings)
        if "data" in needed:
            inputs = make_payload(spec, {}, np.random.default_rng(0)).inputs
            np.savez(tmp_path / "set.npz", **inputs)
            needed["data"] = {"file": tmp_path / "set.npz"}
        # Only the one that hangs is to be given up on, on any machine.
        timeout = 0.5 if isinstance(lie, Hung) else 30.0
        chosen = settings(timeout_seconds=timeout, linger_seconds=0.2, **needed)
        probe = chosen.build(access)
        targets = probe.targets(access.board.current)
        assert targets
        for target in targets:
            verdict = probe.attempt(target)
            assert verdict.outcome in OUTCOMES
            assert verdict.outcome in outcomes, verdict
            assert bool(verdict.detail) == (verdict.outcome != "ok")


def test_no_test_folder_is_a_package() -> None:
    # `tests/exporter/__init__.py` would be imported in place of the real one.
    packages = {file.parent for file in TESTS.rglob("__init__.py")}
    assert packages == {TESTS / "support" / "fake_triton"}
