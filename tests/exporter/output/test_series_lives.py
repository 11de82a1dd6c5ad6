"""When totals began: over resets, absences, reloads and clocks that are set back."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from exporter import catalogue
from exporter.histograms.histogram import Histogram
from exporter.output.series_lives import SeriesLives
from exporter.samples import BucketSample, HistogramSample, Sample

if TYPE_CHECKING:
    from collections.abc import Iterator


def counter(total: float, model: str = "m") -> Sample:
    return Sample(catalogue.INFERENCES, total, (model, "1"))


def created(lives: SeriesLives, now: float, *samples) -> list[float | None]:
    return [sample.created for sample in lives.dated(samples, lambda: now)]


def test_what_is_there_at_the_first_reading_began_with_the_process() -> None:
    lives = SeriesLives(100.0)
    assert created(lives, 130.0, counter(7)) == [100.0]
    assert created(lives, 145.0, counter(9)) == [100.0]


def test_a_series_that_appears_began_after_the_reading_before() -> None:
    lives = SeriesLives(100.0)
    created(lives, 130.0, counter(7))
    assert created(lives, 145.0, counter(7), counter(3, "new")) == [100.0, 130.0]


def test_a_total_that_falls_began_anew_and_only_then() -> None:
    lives = SeriesLives(100.0)
    readings = [(130.0, 7), (145.0, 7), (160.0, 2), (175.0, 2), (190.0, 9)]
    found = [created(lives, now, counter(total))[0] for now, total in readings]
    assert found == [100.0, 100.0, 145.0, 145.0, 145.0]


def test_no_beginning_is_in_the_future_after_the_clock_was_set_back() -> None:
    lives = SeriesLives(1000.0)
    created(lives, 1030.0, counter(7))
    assert created(lives, 500.0, counter(9), counter(1, "n")) == [500.0, 500.0]
    assert created(lives, 515.0, counter(9)) == [500.0]
    assert created(lives, 1045.0, counter(9), counter(1, "new")) == [500.0, 515.0]


def test_a_series_that_was_absent_keeps_its_beginning() -> None:
    lives = SeriesLives(100.0)
    created(lives, 130.0, counter(400))
    created(lives, 145.0)
    assert created(lives, 160.0, counter(400)) == [100.0]
    created(lives, 175.0)
    assert created(lives, 190.0, counter(3)) == [175.0]


def test_of_two_readings_at_once_neither_makes_a_total_fall() -> None:
    lives = SeriesLives(100.0)
    created(lives, 130.0, counter(7))
    found = []
    newer = threading.Thread(
        target=lambda: found.extend(created(lives, 146.0, counter(9)))
    )

    def interrupted() -> Iterator[Sample]:
        yield counter(8)
        newer.start()
        newer.join(0.2)

    found += [s.created for s in lives.dated(interrupted(), lambda: 145.0)]
    newer.join()
    assert found == [100.0] * 2
    assert created(lives, 160.0, counter(10)) == [100.0]


def test_each_kind_of_total_is_dated_and_keeps_everything_else() -> None:
    histogram = Histogram()
    histogram.record(0.1)
    key = ("m", "1")
    bounds = catalogue.BATCH_BOUNDS
    samples = [
        counter(1),
        HistogramSample(catalogue.REQUEST_DURATION, histogram, key),
        BucketSample(catalogue.BATCH_SIZE, (1.0,) * len(bounds), 1, 1, key),
    ]
    dated = list(SeriesLives(5.0).dated(samples, lambda: 9.0))
    assert dated == samples
    assert [sample.created for sample in dated] == [5.0] * 3


def test_gauges_and_totals_that_began_before_this_process_are_not_dated() -> None:
    foreign = [
        Sample(catalogue.MODEL_READY, 1, ("m", "1")),
        Sample(catalogue.CACHE, 400, ("m", "1", "hit")),
        Sample(catalogue.SPC_SAMPLES, 400, ("s",)),
    ]
    assert created(SeriesLives(5.0), 9.0, *foreign) == [None] * 3


@pytest.mark.parametrize("readings", [3, 50])
def test_what_is_remembered_is_bounded_and_what_is_exposed_stays(readings) -> None:
    lives = SeriesLives(0.0, most_series=10)
    for reading in range(readings):
        passing = [counter(1, f"{reading}-{n}") for n in range(5)]
        (begun, *_) = created(lives, reading + 1.0, counter(reading), *passing)
        assert begun == 0.0
    assert len(lives._lives) <= 10
