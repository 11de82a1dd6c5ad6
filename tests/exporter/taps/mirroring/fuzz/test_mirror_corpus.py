"""Replays what the fuzzer found worth keeping."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

DATA = Path(__file__).parents[4] / "data" / "mirror" / "fuzz"

_spec = importlib.util.spec_from_file_location(
    "mirror_fuzz_targets", Path(__file__).with_name("targets.py")
)
assert _spec is not None
assert _spec.loader is not None
targets = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(targets)


@pytest.mark.parametrize("target", targets.TARGETS)
def test_every_input_of_the_corpus_is_survived(target):
    inputs = sorted((DATA / target).iterdir())
    assert len(inputs) > 5
    for path in inputs:
        targets.TARGETS[target](path.read_bytes())
