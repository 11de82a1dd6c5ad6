"""One signal: what it learns, when it speaks, how long an alarm stands."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from exporter.features.spc.control_charts import (
    MOST_WIDENING,
    Cusum,
    Ewma,
    PageHinkley,
    Shewhart,
    limit_of,
)
from exporter.features.spc.signal_baseline import Baseline, learn
from exporter.features.spc.signal_monitor import Plan, Signal

ALL = (Shewhart(), Ewma(0.2), Cusum(0.5, 0.5), PageHinkley(0.5))


def plan(**changes) -> Plan:
    return Plan(
        **{"charts": ALL, "in_control_arl": 2000.0, "learn_samples": 200} | changes
    )


def noise(count, *, mean=10.0, sigma=2.0, correlation=0.0, seed=1):
    rng = np.random.default_rng(seed)
    value, found = 0.0, []
    for shock in rng.normal(size=count):
        value = correlation * value + math.sqrt(1 - correlation**2) * shock
        found.append(mean + sigma * value)
    return found


def alarmed(signal):
    return any(status.alarm for status in signal.status())


def fed(signal, values):
    return [signal.add(value) for value in values]


class TestLearning:
    @pytest.mark.parametrize("count", [25, 80])
    def test_doubts_are_those_of_ljung_and_box_and_of_jarque_and_bera(
        self, count
    ) -> None:
        rng = np.random.default_rng(4)
        doubts = set()
        for _ in range(150):
            values = rng.standard_t(5, count)
            found = learn(values + 0.4 * np.roll(values, 2))
            rest = values + 0.4 * np.roll(values, 2) - found.mean
            if found.correlation:
                rest = rest[1:] - found.correlation * rest[:-1]
            lagged = np.correlate(rest - rest.mean(), rest - rest.mean(), "full")
            size, lags = rest.size, np.arange(1, min(10, rest.size // 5) + 1)
            squares = (lagged[size - 1 + lags] / lagged[size - 1]) ** 2
            statistic = size * (size + 2) * (squares / (size - lags)).sum()
            doubt = stats.chi2.sf(statistic, lags.size)
            normal = stats.jarque_bera(rest).pvalue
            assert found.normal == (normal >= 0.01)
            # The chi-square distribution is within 0.0002 of scipy's.
            if abs(doubt - 0.01) > 2e-4:
                assert (found.assumption == "doubtful") == (doubt < 0.01)
            doubts.add((found.normal, found.assumption))
        assert len(doubts) == 6

    def test_a_signal_that_never_moved_is_called_constant(self) -> None:
        found = learn([0.971] * 50)
        assert found.assumption == "constant"
        assert found.sigma > 0
        assert learn([0.971] * 50, least_sigma=0.01).sigma == 0.01

    @pytest.mark.parametrize("correlation", [0.0, 0.5, 0.8])
    def test_errors_and_doubts_come_as_often_as_they_are_said_to(
        self, correlation
    ) -> None:
        found = [
            learn(noise(300, mean=5.0, sigma=3.0, correlation=correlation, seed=seed))
            for seed in range(400)
        ]
        learnt = np.array([one.correlation for one in found])
        deviation = np.array([one.residual_sigma for one in found])
        # The long-run mean and spread of residuals are within their bounds in nine of
        # ten, and not in all.
        shifts = np.array([one.mean - 5.0 for one in found]) * (1 - learnt) / deviation
        spreads = 3.0 * math.sqrt(1 - correlation**2) / deviation
        spreads *= (1 - learnt) / (1 - correlation)
        bounded = np.abs(shifts) <= [one.shift_error for one in found]
        assert 0.86 < np.mean(bounded) < 0.99
        bounded = spreads <= [one.spread_error for one in found]
        assert 0.86 < np.mean(bounded) < 0.98
        # Kendall's correction leaves no bias of the correlation.
        error = 4 * math.sqrt((1 - correlation**2) / 300 / 400)
        assert np.mean(learnt) == pytest.approx(correlation, abs=error)
        # Correlation of neighbours is noticed beyond two deviations.
        independent = np.mean(learnt == 0)
        assert independent == 0 if correlation else 0.92 < independent < 0.985

    def test_a_sample_is_standardised_by_what_the_one_before_does_not_explain(
        self,
    ) -> None:
        baseline = Baseline(10.0, 2.0, 0.6)
        assert baseline.standardised(13.0, None) == 1.5
        # Of 2 above the mean 1.2 are expected again; 0.8 times the deviation is left.
        assert baseline.standardised(13.0, 12.0) == pytest.approx(1.8 / 1.6)
        assert baseline.standardised(7.0, 8.0) == pytest.approx(-1.8 / 1.6)
        assert baseline.standardised(1e9, None) == 20.0
        assert baseline.standardised(-1e9, 10.0) == -20.0

    def test_a_baseline_of_two_days_shows_a_daily_wave_and_no_shorter_one(self) -> None:
        values, two_days = noise(600), 2 * 86_400.0
        assert learn(values, seconds=two_days).refused == "none"
        assert learn(values, seconds=two_days - 1).refused == "short_time"

    @pytest.mark.parametrize("values", [[1.0] * 5, [math.nan] * 30])
    def test_too_little_is_refused(self, values) -> None:
        with pytest.raises(ValueError, match="want at least 20"):
            learn(values)


class TestWatching:
    def test_a_side_that_is_not_watched_is_silent(self) -> None:
        signal = Signal(plan(given=Baseline(10, 2), sides="lower"))
        fed(signal, noise(100, mean=30))
        assert not alarmed(signal)
        fed(signal, noise(100, mean=0))
        assert alarmed(signal)
        assert all(status.statistic < 0 for status in signal.status())

    def test_a_baseline_that_never_moved_makes_any_move_an_alarm(self) -> None:
        signal = Signal(plan())
        fed(signal, [0.971] * 300)
        assert not alarmed(signal)
        assert signal.add(0.95)

    def test_what_is_not_finite_or_huge_is_passed_over(self) -> None:
        signal = Signal(plan(given=Baseline(0, 1)))
        assert not any(fed(signal, [math.nan, math.inf, -math.inf, 1e300, -1e71]))
        assert signal.samples == 0

    def test_a_baseline_is_learnt_from_the_largest_samples_taken(self) -> None:
        signal = Signal(plan(learn_samples=20))
        fed(signal, [*noise(19), 1e70])
        assert signal.baseline is not None
        assert math.isfinite(signal.baseline.sigma)

    def test_a_learnt_baseline_has_wider_limits_that_hold_the_run_length(self) -> None:
        given = Signal(plan(given=Baseline(0, 1)))
        signal = Signal(plan(learn_samples=600))
        fed(signal, noise(600))
        assert signal.refused == given.refused == "none"
        for known, learnt in zip(given.status(), signal.status(), strict=True):
            assert known.run_length == pytest.approx(2000 * len(ALL), rel=0.01)
            assert known.run_length_low == learnt.run_length_low == 2000 * len(ALL)
            assert known.limit < learnt.limit < 1.5 * known.limit
            assert learnt.run_length > 1.2 * learnt.run_length_low

    @pytest.mark.parametrize(
        ("values", "seconds", "reason"),
        [
            (noise(600), 60.0, "short_time"),
            (noise(100), math.inf, "few_samples"),
            (noise(600, correlation=0.995), math.inf, "correlated"),
            (3 * np.sin(np.arange(600) / 3) + noise(600), math.inf, "correlated"),
            (np.random.default_rng(3).standard_t(5, 600), math.inf, "tails"),
            ([1.0] * 600, math.inf, "constant"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_a_bound_that_cannot_be_given_is_refused_with_the_reason(
        self, values, seconds, reason
    ) -> None:
        signal = Signal(plan(learn_samples=len(values), sample_seconds=seconds))
        fed(signal, values)
        assert signal.refused == reason
        assert all(status.run_length_low is None for status in signal.status())

    def test_a_limit_that_would_blind_a_chart_is_cut_and_the_bound_refused(
        self,
    ) -> None:
        charts = (Cusum(0.05),)
        signal = Signal(plan(charts=charts, in_control_arl=1e5, learn_samples=600))
        fed(signal, noise(600))
        assert signal.baseline
        assert signal.baseline.refused == "none"
        assert signal.refused == "few_samples"
        (status,) = signal.status()
        assert status.limit == pytest.approx(
            MOST_WIDENING * limit_of(Cusum(0.05), 1e5, "both")
        )

    def test_page_hinkley_learns_a_slow_drift_that_a_cusum_tells(self) -> None:
        given = Baseline(0, 1)
        drift = [
            value + i / 4000 for i, value in enumerate(noise(4000, mean=0, sigma=1))
        ]
        charts = (Cusum(0.5), PageHinkley(0.5, learnt_from=20))
        signal = Signal(plan(charts=charts, in_control_arl=2000, given=given))
        fed(signal, drift)
        cusum, page_hinkley = signal.status()
        assert cusum.alarms >= 1
        assert page_hinkley.alarms < cusum.alarms


class TestAlarms:
    def in_alarm(self, **changes) -> Signal:
        signal = Signal(plan(given=Baseline(10, 2), heal_samples=15, **changes))
        fed(signal, noise(60, mean=18))
        assert alarmed(signal)
        return signal

    def test_an_alarm_stands_while_the_fault_does(self) -> None:
        signal = self.in_alarm()
        for value in noise(500, mean=18, seed=9):
            signal.add(value)
            assert alarmed(signal)
        assert all(status.alarms == 1 for status in signal.status())

    def test_it_ends_after_so_many_samples_in_a_row_without_one(self) -> None:
        signal = self.in_alarm(charts=(Shewhart(),))
        fed(signal, [*[10.0] * 14, 30.0, *[10.0] * 14])
        assert alarmed(signal)
        signal.add(10.0)
        assert not alarmed(signal)

    @pytest.mark.parametrize("chart", ALL, ids=lambda c: c.kind)
    def test_every_chart_heals_in_bounded_time_after_a_mad_value(self, chart) -> None:
        signal = Signal(plan(charts=(chart,), given=Baseline(0, 1), heal_samples=10))
        fed(signal, [1e12] * 1000)
        assert alarmed(signal)
        fed(signal, [0.0] * 60)
        assert not alarmed(signal)


class TestState:
    def test_a_state_that_knows_no_errors_keeps_its_baseline_without_a_bound(
        self,
    ) -> None:
        first, second = (Signal(plan(learn_samples=600)) for _ in range(2))
        fed(first, noise(620))
        state = first.to_state()
        assert second.restore(json.loads(json.dumps(state)))
        assert second.to_state() == state
        assert not Signal(plan(learn_samples=601)).restore(state)
        for key in ("shift_error", "spread_error", "refused"):
            del state["baseline"][key]
        assert second.restore(json.loads(json.dumps(state)))
        assert second.baseline == replace(
            first.baseline, shift_error=0.0, spread_error=1.0, refused="old_state"
        )
        assert second.refused == "old_state"

    @pytest.mark.parametrize("broken", [{}, {"version": 1}, {"watches": 3}])
    def test_what_is_no_state_is_refused(self, broken) -> None:
        signal = Signal(plan())
        with pytest.raises(ValueError, match="invalid state of a signal"):
            signal.restore(broken)

    @pytest.mark.parametrize(
        "change",
        [
            {"shift_error": -0.02},
            {"spread_error": 0.98},
            {"sigma": 0.0},
            {"sigma": -1.0},
            {"correlation": 1.0},
            {"mean": math.inf},
            {"assumption": "hope"},
            {"refused": "no"},
        ],
        ids=str,
    )
    def test_a_baseline_that_cannot_be_is_refused_and_nothing_is_taken_up(
        self, change
    ) -> None:
        first, second = (Signal(plan(learn_samples=30)) for _ in range(2))
        fed(first, noise(30))
        state = first.to_state()
        state["baseline"] |= change
        with pytest.raises(ValueError, match="invalid state of a signal"):
            second.restore(state)
        assert second.to_state() == Signal(plan(learn_samples=30)).to_state()

    def test_a_memory_of_another_size_is_refused(self) -> None:
        signal = Signal(plan())
        state = signal.to_state()
        state["watches"][0]["memory"] = [1.0, 2.0]
        with pytest.raises(ValueError, match="invalid state of a signal"):
            signal.restore(state)
