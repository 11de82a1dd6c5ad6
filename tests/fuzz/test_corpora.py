"""Replays what the fuzzers found worth keeping."""

from __future__ import annotations

import pytest
from fuzz_targets import TARGETS, folders


@pytest.mark.parametrize("target", TARGETS)
def test_every_input_of_the_corpus_is_survived(target):
    inputs = [
        path
        for folder in folders(target)
        for path in sorted(folder.iterdir())
        if path.is_file()
    ]
    assert len(inputs) > 5
    for path in inputs:
        TARGETS[target](path.read_bytes())
