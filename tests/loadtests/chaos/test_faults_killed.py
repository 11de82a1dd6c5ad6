"""A runner that is killed while it injects leaves nothing that its record cannot undo."""

from __future__ import annotations

import json
import os
import random
import time
from typing import TYPE_CHECKING, Any

import pytest
from killed_injection import KilledInjections
from monitoring import free_port
from parts import require
from pydantic import TypeAdapter
from sites import EmbeddedSite

from loadtests.chaos.faults import AnyFault
from loadtests.chaos.proxy_process import FaultProxy

if TYPE_CHECKING:
    from collections.abc import Generator

    from loadtests.chaos.faults import Fault

QUICK_POINTS, ALL_POINTS = 3, 24
SLOW = [pytest.mark.slow, pytest.mark.timeout(300)]
SETTLE_SECONDS = 0.2
"""Longer than a program that was started before the kill needs to do its work."""


@pytest.fixture(scope="module")
def killed() -> Generator[KilledInjections]:
    with KilledInjections() as injections:
        yield injections


@pytest.fixture(scope="module")
def site(loaded, tmp_path_factory) -> Generator[EmbeddedSite]:
    with FaultProxy(grpc=loaded.grpc, http=loaded.http) as proxy:
        yield EmbeddedSite(
            loaded,
            proxy=proxy.control,
            trace_folder=tmp_path_factory.mktemp("traces"),
            peers={name: f"127.0.0.1:{free_port()}" for name in ("otlp", "tap")},
        )


WITHOUT_ROOT = [
    {"kind": "partition", "mechanism": "proxy"},
    {"kind": "cpu_hog", "busy_percent": 1, "processes": 3},
    {"kind": "memory_hog", "available_percent": 1},
    {"kind": "otlp_hang"},
    {"kind": "tap_stalled"},
]
WITH_ROOT = [
    {"kind": "partition", "mechanism": "nft"},
    {"kind": "cpu_limit"},
    {"kind": "memory_limit", "headroom_mebibytes": 512},
    {"kind": "disk_full", "mechanism": "mount"},
]
FAULT = TypeAdapter(AnyFault)


def named(case: Any) -> str:
    return "-".join(str(case[key]) for key in ("kind", "mechanism") if key in case)


def is_undone_wherever_it_is_killed(
    site: EmbeddedSite, killed: KilledInjections, fault: Fault, points: int
) -> None:
    """Once to the end, for the time that it takes; then at as many points of that."""
    kind = type(fault)
    taken = killed.inject(fault.kind, journalled(fault, site, kept := []))
    undo(kind, kept[0])
    drawn = random.Random(f"{fault.kind} {points}")  # noqa: S311 - instants of a test
    for _ in range(points):
        record = journalled(fault, site, kept := [])
        killed.inject(fault.kind, record, drawn.uniform(0, 1.1 * taken))
        undo(kind, kept[0])


def journalled(fault: Fault, site: EmbeddedSite, kept: list[str]) -> dict[str, Any]:
    """The record, which is kept as a journal keeps it."""
    record = fault.prepare(site)
    kept.append(json.dumps(record))
    return record


def undo(kind: type[Fault], line: str) -> None:
    """As another process does that knows no more than the journal's line."""
    deadline = time.monotonic() + SETTLE_SECONDS
    record = json.loads(line)
    while True:
        kind.revert(record)
        left = kind.residue(record)
        if time.monotonic() > deadline:
            break
        time.sleep(SETTLE_SECONDS / 10)
    assert left == []


@pytest.mark.parametrize("settings", WITHOUT_ROOT + WITH_ROOT, ids=named)
@pytest.mark.parametrize("points", [QUICK_POINTS, pytest.param(ALL_POINTS, marks=SLOW)])
def test_whenever_it_is_killed_its_record_is_enough(
    site: EmbeddedSite, killed: KilledInjections, settings: dict[str, Any], points: int
):
    if settings in WITH_ROOT and os.geteuid() != 0:
        pytest.skip("needs root")
    if settings.get("mechanism") == "nft":
        require("nft")
    fault = FAULT.validate_python(settings)
    is_undone_wherever_it_is_killed(site, killed, fault, points)
    assert site.triton.running
