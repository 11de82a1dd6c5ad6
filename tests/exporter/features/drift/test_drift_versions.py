"""A state that an earlier program wrote goes on where it was."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from clocks import Clock

from drift import codec
from drift.reference import Profile
from exporter.features.drift.drift_settings import DriftSettings
from exporter.features.drift.drift_watch import VERSION, Watch

# Written by version 0.1.0 in the third of six windows with a change, half a window later;
# `expected.json` is what that program said of the window after that.
OLD = Path(__file__).parents[3] / "data" / "drift" / "state_1"
COLOURS = np.array([b"red", b"green", b"blue"], object)
EPOCH = 1.8e9


def rows(seed, number, shift):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(number, 2)).astype(np.float32)
    x[:, 1] += shift
    return {"x": x, "colour": COLOURS[rng.integers(0, 3, (number, 1))]}


def watch():
    clock = Clock(60.0)
    settings = DriftSettings.model_validate(
        {"learn": {}, "window": {"rows": 100, "seconds": 10, "panes": 2}}
    )
    profile = Profile.from_bytes((OLD / "profile.json").read_bytes())
    made = Watch(profile, settings, clock=clock, wall_clock=lambda: EPOCH + clock.now)
    return made, clock


@pytest.mark.parametrize("saved_again", [False, True])
def test_the_next_verdict_is_the_one_the_earlier_program_gave(saved_again):
    state = (OLD / "watch").read_bytes()
    assert codec.version_of(state) == "1" != str(VERSION)
    made, clock = watch()
    made.restore(state)
    if saved_again:
        state = b"".join(made.state())
        assert codec.version_of(state) == str(VERSION)
        made, clock = watch()
        made.restore(state)
    clock.now += 10
    made.add(rows(60, 200, 1.0))
    assert made.step()
    wanted = json.loads((OLD / "expected.json").read_text("utf-8"))
    verdict, total = made.result.verdict, made.result.total
    places = np.arange(total.cells.size).reshape(total.cells.shape)
    assert {
        "alarm": verdict.alarm,
        "since_windows": verdict.since_windows,
        "culprits": [culprit.feature for culprit in verdict.culprits],
        "rows": total.rows,
        "cells": int((total.cells * places).sum()),
    } == {
        key: wanted[key] for key in wanted.keys() - {"log_evidence", "features", "psi"}
    }
    # As exact as another machine's logarithm.
    assert verdict.log_evidence == pytest.approx(wanted["log_evidence"], rel=1e-9)
    assert verdict.features == pytest.approx(wanted["features"], rel=1e-9)
    assert made.result.scores[0].distance == pytest.approx(wanted["psi"], rel=1e-9)
