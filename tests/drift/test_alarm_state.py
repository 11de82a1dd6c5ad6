"""The alarm's state: restored, refused, bounded."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from drifting_data import SCHEMA, SETTINGS, draw, window_of

from drift import codec
from drift.alarms.ledger import MAX_STARTS, Ledger
from drift.alarms.monitor import Monitor
from drift.errors import StateError
from drift.fitting import fit


def saved(monitor):
    """The state after a journey through a file."""
    data = b"".join(codec.packed("monitor", 1, monitor.state()))
    return codec.unpacked(data, "monitor", 1)


def test_a_restored_monitor_goes_on_to_the_same_verdicts():
    rng = np.random.default_rng(9)
    profile = fit(SCHEMA, draw(rng, 3000))
    first = Monitor(profile, SETTINGS)
    second = Monitor(profile, SETTINGS)
    for number in range(30):
        data = draw(rng, 300, shift=0.3 * (10 <= number < 22))
        expected = first.update(window_of(profile, data))
        restored = Monitor(profile, SETTINGS)
        restored.resume(saved(second))
        second = restored
        found = second.update(window_of(profile, data))
        assert found.log_evidence == expected.log_evidence
        assert found.culprits == expected.culprits
        assert (found.alarm, found.since_windows) == (
            expected.alarm,
            expected.since_windows,
        )


@pytest.mark.parametrize("left_out", [range(20, 28), [*range(20, 28), 31]])
def test_sums_that_were_saved_with_fewer_bins_or_without_trials_are_restored(left_out):
    rng = np.random.default_rng(12)
    profile = replace(fit(SCHEMA, draw(rng, 1000)), bins=16)
    monitor, again = Monitor(profile, SETTINGS), Monitor(profile, SETTINGS)
    data = draw(rng, 100)
    data["x"][:7, 0] = np.nan
    monitor.update(window_of(profile, data))
    state = saved(monitor)
    ledger = state["ledger"]
    old = {
        "total": np.delete(ledger["total"], left_out, axis=-1),
        "since": [np.delete(sums, left_out, axis=-1) for sums in ledger["since"]],
    }
    again.resume({**state, "ledger": {**ledger, **old}})
    for name in ("total", "since"):
        assert np.array_equal(again.state()["ledger"][name], ledger[name])


def test_foreign_state_is_refused_and_changes_nothing():
    rng = np.random.default_rng(10)
    mine, other = (fit(SCHEMA, draw(rng, 1000)) for _ in range(2))
    monitor = Monitor(mine, SETTINGS)
    monitor.update(window_of(mine, draw(rng, 100)))
    before = json.dumps(saved(monitor), default=np.ndarray.tolist)
    mangled = saved(monitor)
    mangled["ledger"] = {}
    empty = saved(monitor)
    empty["ledger"] = {**empty["ledger"], "total": []}
    for state in ({}, mangled, empty, saved(Monitor(other))):
        with pytest.raises(StateError):
            monitor.resume(state)
    assert json.dumps(saved(monitor), default=np.ndarray.tolist) == before


def test_state_stays_small_however_long_it_runs():
    ledger = Ledger(np.ones((3, 32)))
    for _ in range(5000):
        ledger.push(np.ones((3, 32)))
        ages = ledger.ages
        assert len(ages) <= MAX_STARTS
        # A change begins at most half its age after a start that is remembered.
        assert all(2 * (b - a) <= b for a, b in itertools.pairwise(ages))
    assert ledger.ages[:8] == list(range(1, 9))
    assert ledger.ages[-1] == 5000


def test_the_sums_before_and_since_a_start_are_those_of_its_windows():
    rng = np.random.default_rng(11)
    reference = rng.normal(size=(2, 32))
    windows = rng.normal(size=(200, 2, 32))
    ledger = Ledger(reference)
    for window in windows:
        ledger.push(window)
    before, since = ledger.sides()
    for index, age in enumerate(ledger.ages):
        assert np.allclose(since.packed[index], windows[200 - age :].sum(axis=0))
        expected = reference + windows[: 200 - age].sum(axis=0)
        assert np.allclose(before.packed[index], expected)
    # A change is declared four windows ago: what was before stays the baseline.
    baseline = reference + windows[:196].sum(axis=0)
    ledger.freeze(ledger.ages.index(4))
    assert (ledger.ages, ledger.frozen) == ([], True)
    for window in windows[:3]:
        ledger.push(window)
    restored = Ledger(reference)
    restored.restore(ledger.state())
    for one in (ledger, restored):
        before, since = one.sides(slice(1, 2), starts=[2])
        assert np.allclose(before.packed, baseline[1])
        assert np.allclose(since.packed, windows[:3, 1].sum(axis=0))
        one.thaw()
        one.push(windows[0])
        before, since = one.sides()
        assert (one.ages, one.frozen) == ([1], False)
        assert np.allclose(before.packed, baseline)
        assert np.allclose(since.packed, windows[0])
