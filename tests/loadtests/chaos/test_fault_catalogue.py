"""Every fault is told of in the README."""

from __future__ import annotations

from pathlib import Path

import pytest

import loadtests.chaos
from loadtests.chaos.faults import FAULTS

README = Path(loadtests.chaos.__file__).with_name("README.md")


@pytest.mark.parametrize("kind", FAULTS)
def test_the_readme_tells_of_a_fault_and_of_its_strength(kind: str):
    lines = README.read_text("utf-8").splitlines()
    row = next(
        (
            line
            for line in lines
            if f"`{kind}`" in line.partition("| ")[2].split("|")[0]
        ),
        None,
    )
    assert row is not None, f"{README} has no row for {kind}"
    strength = FAULTS[kind].strength
    assert strength is None or f"`{strength}`" in row
