"""A soak tells a sidecar that leaks from one whose windows fill."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from simulated_outages import evidence, poisson, run

from exporter import cli
from loadtests.chaos.measuring.footprint import soaked
from loadtests.chaos.measuring.observations import Series
from loadtests.chaos.measuring.polling import OPEN_FDS, RESIDENT
from loadtests.chaos.results import journal_file
from loadtests.chaos.results.journal_file import Journal
from loadtests.chaos.soak import FAULTS, drawn

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from loadtests.chaos.measuring.footprint import Soak


MINUTES = 20
PAGE = 4096
BASE = 88e6


def scraped(
    extra: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    seed: int,
    *,
    minutes: float = MINUTES,
    fds_an_hour: float = 0.0,
    away: float = math.inf,
) -> tuple[Series, ...]:
    """A sidecar that is scraped all the while; `extra` is what it holds by seconds.

    From `away` on it does not answer.
    """
    rng = np.random.default_rng(seed)
    at = np.arange(0, minutes * 60, 0.5)
    # Some pages come and go, and a minute's work is done in a burst.
    noise = rng.normal(scale=15e3, size=at.size) + 30e3 * np.sin(at / 37)
    held = BASE + extra(at) + noise
    fds = 20 + rng.integers(0, 3, at.size) + (fds_an_hour * at / 3600).astype(int)
    shown = {"up": at < away, RESIDENT: held // PAGE * PAGE, OPEN_FDS: fds}
    return tuple(
        Series(
            metric=name,
            labels={},
            at_seconds=tuple(at.tolist()),
            values=tuple(values.astype(float).tolist()),
        )
        for name, values in shown.items()
    )


def watched(
    extra: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    seed: int,
    **more: float,
) -> Soak:
    return soaked(evidence(None, series=scraped(extra, seed, **more)))


@pytest.mark.parametrize(
    ("bytes_an_hour", "status", "shown"),
    [(5e6, 1, "resident memory grew by at least"), (0.0, 0, "HELD")],
)
def test_the_report_of_its_journal_judges_the_footprint(
    bytes_an_hour, status, shown, tmp_path, capsys
):
    series = scraped(lambda at: bytes_an_hour * at / 3600, 1)
    sent = run(poisson(5.0, MINUTES * 60))
    seen = evidence(sent, series=series, experiment=drawn(MINUTES, 1).document)
    journal_file.write(tmp_path / "soak.json", Journal.of([seen]))
    card = tmp_path / "card.json"
    command = ["chaos", "report", str(tmp_path), "--json", str(card)]
    assert cli.main(command) == status
    told = capsys.readouterr().out
    assert shown in told
    assert "growth an hour" in told
    assert ("finding" in card.read_text("utf-8")) is bool(status)


@pytest.mark.parametrize("seed", range(5))
def test_a_leak_is_found(seed):
    soak = watched(lambda at: 5e6 * at / 3600, seed)
    assert soak.growth_low < 5e6 < soak.growth_high
    assert any("resident memory" in told for told in soak.broken)
    assert soak.undecided == ()


@pytest.mark.parametrize("seed", range(5))
def test_a_leak_in_steps_is_found(seed):
    # A server that is killed every two minutes, and 200 kB each time.
    soak = watched(lambda at: 200e3 * (at // 120), seed)
    assert any("resident memory" in told for told in soak.broken)


@pytest.mark.parametrize("seed", range(5))
def test_windows_that_fill_are_no_leak(seed):
    soak = watched(lambda at: 4e6 * np.minimum(at / 500, 1), seed)
    assert soak.growth_late < 1e6
    assert soak.broken == ()


@pytest.mark.parametrize("seed", range(5))
def test_one_that_stays_as_it_is_keeps_its_promise(seed):
    soak = watched(np.zeros_like, seed)
    assert soak.growth_low <= 0 <= soak.growth_high
    assert soak.broken == soak.undecided == ()
    assert soak.open_fds_growth == 0


def test_growth_that_is_neither_certain_nor_small_is_undecided():
    # One step as large as all that an hour may bring, near the end.
    soak = watched(lambda at: 2.4e6 * (at > 1100), 1)
    assert soak.growth_low < 2e6 < soak.growth_late
    assert soak.broken == ()
    assert "is not excluded" in soak.undecided[0]


def test_an_interval_holds_the_growth_of_steps_that_come_at_any_time():
    # One a minute on average; an interval of a line's slope holds it 2 times of 5.
    growth, runs = 2e6, 60
    held = 0
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        times = np.cumsum(rng.exponential(60, 4 * MINUTES))
        steps = rng.exponential(growth / 60, times.size).cumsum()
        steps = np.concatenate(([0.0], steps))
        soak = watched(
            lambda at, times=times, steps=steps: steps[np.searchsorted(times, at)], seed
        )
        held += soak.growth_low <= growth <= soak.growth_high
    assert held / runs > 0.85


def test_descriptors_that_are_not_closed_are_found():
    soak = watched(np.zeros_like, 1, fds_an_hour=60)
    assert any("descriptors more" in told for told in soak.broken)


def test_a_sidecar_that_falls_over_is_found():
    soak = watched(np.zeros_like, 1, away=1199.0)
    assert soak.broken == ("the sidecar did not stay up: 2 of 2400 scrapes failed",)


def test_of_two_minutes_no_slope_is_told():
    soak = watched(lambda at: 5e6 * at / 3600, 1, minutes=2)
    assert soak.growth_bytes_per_hour is soak.growth_late is None
    assert soak.open_fds_growth is not None
    assert "is not excluded" in soak.undecided[0]


def test_a_sidecar_that_was_never_scraped_is_found():
    assert "was never scraped" in soaked(evidence(None)).broken[0]


def test_every_fault_comes_once_before_one_comes_twice():
    method = drawn(MINUTES, seed=3).document["method"]
    kinds = [
        step["provider"]["arguments"]["fault"]["kind"]
        for step in method
        if step["provider"]["func"] == "inject"
    ]
    assert set(kinds[: len(FAULTS)]) == {fault["kind"] for fault, _ in FAULTS}
    assert len(kinds) > 3 * len(FAULTS)
