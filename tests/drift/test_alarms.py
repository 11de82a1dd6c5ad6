"""The alarm's promise: its error rate, its delays, its explanation, its state."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from drift.alarms import evidence
from drift.alarms.ledger import MAX_STARTS, Ledger
from drift.alarms.monitor import CHANNELS, AlarmSettings, Monitor
from drift.alarms.selection import e_benjamini_hochberg
from drift.errors import StateError
from drift.features import Feature, Schema, Tensor
from drift.fitting import ProfileBuilder, fit

SCHEMA = Schema(
    (Tensor("x", "FP32", (4,)), Tensor("c", "INT64", (2,))),
    (
        Feature("normal", "x", 0),
        Feature("lognormal", "x", 1),
        Feature("heavy", "x", 2),
        Feature("whole", "x", 3),
        Feature("few", "c", 0, "categorical"),
        Feature("many", "c", 1, "categorical"),
    ),
)
SETTINGS = AlarmSettings(windows_per_false_alarm=1000)


def draw(rng, rows, *, shift=0.0, scale=1.0, missing=0.0):
    x = np.stack(
        [
            rng.normal(size=rows) * scale + shift,
            rng.lognormal(size=rows),
            rng.standard_t(3, size=rows),
            rng.poisson(2.0, size=rows).astype(float),
        ],
        axis=1,
    )
    x[rng.random(rows) < missing, 0] = np.nan
    c = np.stack([rng.integers(0, 3, size=rows), rng.integers(0, 60, size=rows)], 1)
    return {"x": x.astype(np.float32), "c": c}


def window_of(profile, data):
    window = profile.accumulator()
    window.update(data)
    return window.take()


def first_alarm(rng, *, rows=500, reference=10_000, limit=60, clean=0, **change):
    """Windows until the alarm (limit + 1 if none), and its verdict."""
    profile = fit(SCHEMA, draw(rng, reference))
    monitor = Monitor(profile, SETTINGS)
    for _ in range(clean):
        monitor.update(window_of(profile, draw(rng, rows)))
    for number in range(1, limit + 1):
        verdict = monitor.update(window_of(profile, draw(rng, rows, **change)))
        if verdict.alarm:
            return number, verdict
    return limit + 1, verdict


@pytest.mark.parametrize(
    ("reference", "rows"), [(10_000, 500), (1000, 500), (1000, 100), (1000, 5000)]
)
def test_clean_windows_raise_no_more_alarms_than_wanted(reference, rows):
    rng = np.random.default_rng([reference, rows])
    alarms = 0
    for _ in range(8):
        profile = fit(SCHEMA, draw(rng, reference))
        monitor = Monitor(profile, SETTINGS)
        for _ in range(50):
            verdict = monitor.update(window_of(profile, draw(rng, rows)))
            alarms += verdict.raised
    # 400 windows at 1 in 1,000: 4 or more has chance 8e-4 (binomial).
    assert alarms <= 3


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("reference", "rows"), [(10_000, 500), (1000, 500)])
def test_the_promise_holds_over_many_references(reference, rows):
    rng = np.random.default_rng([reference, rows, 1])
    alarms = 0
    for _ in range(500):
        profile = fit(SCHEMA, draw(rng, reference))
        monitor = Monitor(profile, SETTINGS)
        for _ in range(60):
            verdict = monitor.update(window_of(profile, draw(rng, rows)))
            alarms += verdict.raised
    # 30,000 windows at 1 in 1,000: 50 or more has chance 5e-4 (binomial).
    assert alarms < 50


@pytest.mark.parametrize(
    ("change", "goal"),
    [
        ({"shift": 0.1}, 10),
        ({"shift": 0.25}, 2),
        ({"scale": 1.1}, 6),
        ({"missing": 0.01}, 2),
    ],
)
def test_changes_are_found_in_the_wanted_number_of_windows(change, goal):
    rng = np.random.default_rng(list(map(ord, str(change))))
    delays = [first_alarm(rng, clean=5, **change)[0] for _ in range(15)]
    assert np.median(delays) <= goal


def test_dependent_rows_keep_the_promise_once_their_dependence_is_measured():
    rng = np.random.default_rng(1)

    def days(number):
        data = draw(rng, 100 * number)
        data["x"][:, 0] += np.repeat(rng.normal(size=number) * 0.4, 100)
        return data

    alarms, blind = 0, 0
    for _ in range(6):
        data = days(200)
        measured = fit(SCHEMA, data)
        naive = fit(SCHEMA, data, ordered=False)
        monitors = Monitor(measured, SETTINGS), Monitor(naive, SETTINGS)
        for _ in range(50):
            counts = window_of(measured, days(2))
            alarms += monitors[0].update(counts).raised
            blind += monitors[1].update(counts).raised
    # 300 windows at 1 in 1,000: 4 or more has chance 3e-4 (binomial). Without the
    # measurement the same windows alarm all the time.
    assert alarms <= 3
    assert blind >= 6


def test_a_weekly_rhythm_in_the_reference_is_no_change():
    rng = np.random.default_rng(2)

    def of_hour(hour):
        return draw(rng, 60, shift=np.sin(2 * np.pi * hour / 24))

    builder = ProfileBuilder(SCHEMA)
    for hour in range(168 * 5):
        builder.add(of_hour(hour), hour=hour % 168)
    profile = builder.build()
    monitor = Monitor(profile, SETTINGS)
    verdicts = [
        monitor.update(window_of(profile, of_hour(hour)), hour=hour % 168)
        for hour in range(72)
    ]
    assert not any(verdict.alarm for verdict in verdicts)


def test_the_explanation_names_the_feature_the_kind_the_size_and_the_bins():
    rng = np.random.default_rng(3)
    _, verdict = first_alarm(rng, clean=10, shift=0.5)
    culprit = verdict.culprits[0]
    assert [each.feature for each in verdict.culprits] == ["normal"]
    assert culprit.channel in {"location", "shape"}
    # 500 rows or more: the standard error is below 0.05.
    assert abs(culprit.shift_sigma - 0.5) < 0.2
    assert culprit.bins[0].label.startswith("[")
    assert verdict.since_windows <= 2
    _, verdict = first_alarm(rng, missing=0.05)
    assert verdict.culprits[0].channel == "missing"
    name, before, since = verdict.culprits[0].rates[0]
    assert (name, before) == ("missing", 0.0)
    assert 0.02 < since < 0.09


@pytest.mark.parametrize(
    ("spoil", "feature", "channels"),
    [
        (lambda d: d["x"].__setitem__((slice(None), 3), 2.0), "whole", {"shape"}),
        (
            lambda d: d["x"].__setitem__((slice(None), 0), np.inf),
            "normal",
            {"infinite"},
        ),
        (lambda d: d["x"].__setitem__((slice(40), 1), 1e9), "lognormal", {"outside"}),
        (lambda d: d["c"].__setitem__((slice(40), 0), 99), "few", {"outside"}),
        (lambda d: d["c"].__setitem__((slice(250), 1), 0), "many", {"shape"}),
    ],
)
def test_broken_features_alarm_in_the_first_window(spoil, feature, channels):
    rng = np.random.default_rng(4)
    profile = fit(SCHEMA, draw(rng, 5000))
    data = draw(rng, 500)
    spoil(data)
    verdict = Monitor(profile, SETTINGS).update(window_of(profile, data))
    assert verdict.raised
    assert verdict.culprits[0].feature == feature
    assert verdict.culprits[0].channel in channels


def test_an_alarm_stands_while_the_change_lasts_and_ends_after_it():
    rng = np.random.default_rng(5)
    profile = fit(SCHEMA, draw(rng, 5000))
    monitor = Monitor(profile, SETTINGS)
    shifts = [0.0] * 5 + [0.5] * 20 + [0.0] * 15
    states = [
        monitor.update(window_of(profile, draw(rng, 500, shift=shift)))
        for shift in shifts
    ]
    assert not any(verdict.alarm for verdict in states[:5])
    assert all(verdict.alarm for verdict in states[7:25])
    assert not states[-1].alarm
    assert sum(verdict.raised for verdict in states) == 1
    assert states[24].since_windows in {19, 20, 21}


def test_a_shift_within_the_margin_is_ignored_and_one_beyond_it_is_not():
    def alarmed(shift, margin):
        rng = np.random.default_rng(6)
        profile = fit(SCHEMA, draw(rng, 20_000))
        settings = AlarmSettings(windows_per_false_alarm=1000, margin_sigma=margin)
        monitor = Monitor(profile, settings)
        return any(
            monitor.update(window_of(profile, draw(rng, 1000, shift=shift))).alarm
            for _ in range(40)
        )

    assert alarmed(0.1, 0.0)
    assert not alarmed(0.1, 0.15)
    assert alarmed(0.3, 0.15)


def test_a_window_without_rows_says_nothing():
    profile = fit(SCHEMA, draw(np.random.default_rng(7), 1000))
    monitor = Monitor(profile, SETTINGS)
    verdict = monitor.update(window_of(profile, {}))
    assert verdict.window == 0
    assert not verdict.alarm


def test_a_doubtful_reference_marks_the_promise_as_not_kept():
    rng = np.random.default_rng(8)
    for data, ordered, kept in [
        (draw(rng, 2000), True, True),
        (draw(rng, 2000), False, False),
        (draw(rng, 60), True, False),
    ]:
        profile = fit(SCHEMA, data, ordered=ordered)
        verdict = Monitor(profile).update(window_of(profile, draw(rng, 100)))
        assert verdict.kept is kept


def test_a_restored_monitor_goes_on_to_the_same_verdicts():
    rng = np.random.default_rng(9)
    profile = fit(SCHEMA, draw(rng, 3000))
    first = Monitor(profile, SETTINGS)
    second = Monitor(profile, SETTINGS)
    for number in range(30):
        data = draw(rng, 300, shift=0.3 * (10 <= number < 22))
        expected = first.update(window_of(profile, data))
        restored = Monitor(profile, SETTINGS)
        restored.restore(second.to_bytes())
        second = restored
        found = second.update(window_of(profile, data))
        assert found.log_evidence == expected.log_evidence
        assert found.culprits == expected.culprits
        assert (found.alarm, found.since_windows) == (
            expected.alarm,
            expected.since_windows,
        )


def test_foreign_state_is_refused_and_changes_nothing():
    rng = np.random.default_rng(10)
    mine, other = (fit(SCHEMA, draw(rng, 1000)) for _ in range(2))
    monitor = Monitor(mine, SETTINGS)
    monitor.update(window_of(mine, draw(rng, 100)))
    before = monitor.to_bytes()
    for data in (b"", b"PK\x03\x04", before[:-9], Monitor(other).to_bytes()):
        with pytest.raises(StateError):
            monitor.restore(data)
    assert monitor.to_bytes() == before


def test_state_stays_small_however_long_it_runs():
    ledger = Ledger(np.ones((3, 23)))
    for _ in range(5000):
        ledger.push(np.ones((3, 23)))
        assert len(ledger.ages) <= MAX_STARTS
    assert ledger.ages[:8] == list(range(1, 9))
    assert ledger.ages[-1] == 5000


def test_the_sums_before_and_since_a_start_are_those_of_its_windows():
    rng = np.random.default_rng(11)
    reference = rng.normal(size=(2, 23))
    windows = rng.normal(size=(200, 2, 23))
    ledger = Ledger(reference)
    for window in windows:
        ledger.push(window)
    before, since = ledger.sides()
    for index, age in enumerate(ledger.ages):
        assert np.allclose(since.packed[index], windows[200 - age :].sum(axis=0))
        expected = reference + windows[: 200 - age].sum(axis=0)
        assert np.allclose(before.packed[index], expected)


def test_the_evidence_for_a_shift_has_mean_one_without_any():
    rng = np.random.default_rng(12)
    runs = 40_000
    one = evidence.Tilts(*(np.ones((runs, len(evidence.SHIFTS))),) * 2)
    n_b, n_a = np.full(runs, 2000.0), np.full(runs, 300.0)
    sums = rng.normal(size=runs) * np.sqrt(n_b), rng.normal(size=runs) * np.sqrt(n_a)
    ratio = np.exp(evidence.of_mean((n_b, sums[0]), (n_a, sums[1]), one))
    # Only the shifts of up to 0.1 have a variance small enough to average.
    assert ratio.mean() < 1.3


@pytest.mark.parametrize("rate", [0.0, 0.0001, 0.01, 0.3])
def test_the_evidence_for_a_raised_rate_is_at_most_one_on_average(rate):
    rng = np.random.default_rng(13)
    before = rng.binomial(5000, rate, size=20_000).astype(float)
    after = rng.binomial(500, rate, size=20_000).astype(float)
    n_b, n_a = np.full(20_000, 5000.0), np.full(20_000, 500.0)
    ratio = np.exp(evidence.of_rate((n_b, before), (n_a, after)))
    assert ratio.mean() < 1.5


def test_the_evidence_for_another_shape_agrees_with_scipys_multinomials():
    before = np.array([[[4000.0, 3000.0, 2000.0, 1000.0]]])
    after = np.array([[[1.0, 5.0, 0.0, 2.0]]])
    used = np.array([4])
    found = evidence.of_shape(before, after, used)[0, 0]
    posterior = before[0, 0] + 0.5
    share = posterior / posterior.sum()

    def probability(alpha):
        return stats.dirichlet_multinomial(alpha, 8).logpmf(after[0, 0].astype(int))

    others = [probability(c * share) for c in evidence.CONCENTRATIONS]
    expected = np.logaddexp.reduce(others) - np.log(3) - probability(posterior)
    assert np.isclose(found, expected)


def test_false_names_stay_within_their_share_under_full_dependence():
    rng = np.random.default_rng(14)
    wrong = 0
    for _ in range(2000):
        shared = rng.normal()
        e = np.full(20, 1.5 * shared - 1.5**2 / 2)
        wrong += bool(e_benjamini_hochberg(e, 0.1))
    # At most 10 %: of 2,000, 260 or more has chance 1e-5 (binomial).
    assert wrong < 260


def test_naming_is_what_its_definition_says():
    rng = np.random.default_rng(15)
    for _ in range(50):
        e = rng.normal(scale=4.0, size=7)
        sizes = [
            k for k in range(1, 8) if k * np.exp(np.sort(e)[::-1][k - 1]) / 7 >= 1 / 0.2
        ]
        assert len(e_benjamini_hochberg(e, 0.2)) == max(sizes, default=0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"windows_per_false_alarm": 1.0},
        {"windows_per_false_alarm": float("nan")},
        {"false_share": 0.0},
        {"margin_sigma": -0.1},
    ],
)
def test_settings_that_promise_nothing_are_refused(wrong):
    with pytest.raises(StateError):
        AlarmSettings(**wrong)


def test_every_channel_gets_a_share_and_a_feature_no_more_than_its_own():
    profile = fit(SCHEMA, draw(np.random.default_rng(16), 1000))
    weights = np.exp(Monitor(profile)._log_weights)
    assert weights.shape == (6, len(CHANNELS))
    assert np.allclose(weights.sum(axis=1), 1.0)
    used = [tuple(row > 0) for row in weights]
    assert used[0] == (True,) * 6
    assert used[4] == (False, False, True, True, False, True)
    assert len(set(itertools.chain(used))) == 2


@pytest.mark.parametrize("reference", ["nan", "constant", "huge", "one_row", "clean"])
@pytest.mark.parametrize("traffic", ["nan", "constant", "huge", "inf", "one_row"])
def test_awkward_data_get_a_finite_verdict(reference, traffic):
    rng = np.random.default_rng(17)

    def of(kind):
        data = draw(rng, 1 if kind == "one_row" else 600)
        fill = {"nan": np.nan, "constant": 3.0, "inf": np.inf}.get(kind)
        if fill is not None:
            data["x"][:] = fill
        if kind == "huge":
            data["x"] = (1e9 + data["x"] * 1e3).astype(np.float32)
            data["c"] = rng.integers(0, 2**40, size=data["c"].shape)
        return data

    profile = fit(SCHEMA, of(reference))
    monitor = Monitor(profile, SETTINGS)
    for _ in range(3):
        verdict = monitor.update(window_of(profile, of(traffic)))
        assert not np.isnan(verdict.log_evidence)
        assert not np.isnan(verdict.features).any()
        assert verdict.log_evidence < np.inf
    if "one_row" not in {reference, traffic}:
        # What was never there may come: nothing says what it should have been.
        calm = reference == traffic or (reference, traffic) == ("nan", "constant")
        assert verdict.alarm is (not calm)


def test_new_categories_at_the_rate_the_reference_leads_to_expect_are_no_change():
    rng = np.random.default_rng(18)

    def zipf(rows):
        return draw(rng, rows) | {
            "c": np.stack([rng.integers(0, 3, size=rows), rng.zipf(1.5, size=rows)], 1)
        }

    alarms, unseen = 0, 0
    for _ in range(4):
        profile = fit(SCHEMA, zipf(4000))
        monitor = Monitor(profile, SETTINGS)
        for _ in range(40):
            counts = window_of(profile, zipf(300))
            unseen += int(counts.outside[5])
            alarms += monitor.update(counts).raised
    # 160 windows at 1 in 1,000: 3 or more has chance 6e-4 (binomial).
    assert unseen > 160
    assert alarms <= 2
