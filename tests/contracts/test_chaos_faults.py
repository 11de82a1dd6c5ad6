"""Every fault is in the union, says what it does, and keeps the rules of its package."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from commands import python
from pydantic import TypeAdapter, ValidationError
from sites import empty_site

import loadtests.chaos.faults
from loadtests.chaos.faults import FAULTS, AnyFault
from loadtests.chaos.faults.fault import Fault
from loadtests.errors import FaultRefusedError

if TYPE_CHECKING:
    from loadtests.chaos.site import Site

ALL = pytest.mark.parametrize("kind", FAULTS)
PROMISES = ("prepare", "inject", "missing", "revert", "residue")
HEAVY = ("grpc", "tritonclient", "scipy", "locust", "aiohttp", "prometheus_client")


def least(kind: str) -> dict[str, Any]:
    """A fault of this kind with nothing but what it cannot be without."""
    fields = FAULTS[kind].model_fields.items()
    return {"kind": kind} | {name: "m" for name, field in fields if field.is_required()}


def fault_of(kind: str) -> Fault:
    return TypeAdapter(AnyFault).validate_python(least(kind))


def test_every_fault_is_in_the_union_once() -> None:
    package = loadtests.chaos.faults
    found = {
        value
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
        for value in vars(importlib.import_module(module.name)).values()
        if inspect.isclass(value)
        and issubclass(value, Fault)
        and "kind" in value.model_fields
    }
    assert found == set(FAULTS.values()), "add the class to AnyFault"
    kinds = [fault.model_fields["kind"].default for fault in FAULTS.values()]
    assert len(kinds) == len(set(kinds)) == len(found)


@ALL
def test_a_fault_says_what_it_does_and_what_can_be_set(kind) -> None:
    fault = FAULTS[kind]
    assert importlib.import_module(fault.__module__).__doc__
    assert fault.__doc__
    for name in PROMISES:
        assert inspect.getdoc(getattr(fault, name)), name
    for name, field in fault.model_fields.items():
        assert field.description or name == "kind", name


@ALL
def test_a_fault_stands_on_the_page_of_chaos(kind) -> None:
    page = Path(loadtests.chaos.__file__).with_name("README.md").read_text("utf-8")
    assert re.search(rf"^\|[^|]*`{kind}`[^|]*\|.*$", page, re.MULTILINE)


@ALL
def test_a_fault_has_all_of_a_life(kind) -> None:
    for name in PROMISES:
        assert getattr(FAULTS[kind], name) is not getattr(Fault, name), name
    # Whoever reverts has a record and a kind, and no settings.
    for name in ("revert", "residue"):
        assert inspect.ismethod(getattr(FAULTS[kind], name)), name


@ALL
def test_a_faults_settings_are_told_by_its_kind_and_refuse_what_they_do_not_know(
    kind,
) -> None:
    assert type(fault_of(kind)) is FAULTS[kind]
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        TypeAdapter(AnyFault).validate_python({**least(kind), "strenght": 1})


def refusal(fault: Fault, site: Site) -> FaultRefusedError | None:
    try:
        fault.prepare(site)
    except FaultRefusedError as refused:
        return refused
    return None


@ALL
def test_a_fault_refuses_an_empty_site_or_touches_nothing_before_inject(kind) -> None:
    fault, site = fault_of(kind), empty_site()
    refused = refusal(fault, site)
    if refused is not None:
        assert all(str(refused).partition("; ")), "want a reason and an alternative"
        return
    # Some need no part of a deployment, but the host alone.
    record = json.loads(json.dumps(fault.prepare(site)))
    assert fault.missing(record) != []
    assert FAULTS[kind].residue(record) == []
    FAULTS[kind].revert(record)
    FAULTS[kind].revert(record)
    assert FAULTS[kind].residue(record) == []


def test_whoever_undoes_needs_no_client_of_anything() -> None:
    # A watchdog holds what it imported for as long as the run lasts.
    script = "import sys, loadtests.chaos.undoing.undo; print(*sys.modules)"
    assert not set(python(script).split()).intersection(HEAVY)
