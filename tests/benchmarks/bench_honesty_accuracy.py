"""Honesty of accuracy: intervals without labels, golden scores, dates of retraining."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import figures
import numpy as np

from drift.alarms.monitor import Monitor
from drift.features import Schema, Tensor
from drift.fitting import fit
from drift.forecast import Outlook, forecast
from drift.numerics.answer_distribution import row_hashes
from drift.numerics.confidence_calibration import calibrate
from drift.numerics.dependence import copies_inflation
from drift.numerics.normal import share_interval
from exporter.features.golden.golden_data import groups_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from figures import Figure
    from numpy.typing import NDArray

    from drift.numerics.confidence_calibration import Estimate

    Floats = NDArray[np.float64]

GOAL = 0.93
GOAL_OF_DATES = 0.9
"""Their intervals are of 90 %."""
WINDOWS = 400
DIGITS = 30
SERIES = 200
GOLDEN_ROWS, ROWS = 1000, 500
WIDTH = 10
"""Numbers in an input."""


@dataclass(frozen=True)
class Scene:
    """Shapes of a golden set and of production."""

    golden_copies: int = 1
    golden_noise: float = 0.0
    """Of the copies, in standard deviations of a column."""
    copies: int = 1
    """Draw how often production sends each input."""
    spread: float = 1.0
    """Of production's inputs over that of the golden ones: below 1 answers are less sure."""
    flipped: float = 0.0
    """Share of production's labels that are no longer what they were: concept drift."""


ESTIMATES = {
    "as_golden": Scene(),
    "golden_rows_10_times": Scene(golden_copies=10),
    "golden_rows_10_times_nearly": Scene(golden_copies=10, golden_noise=0.005),
    "golden_rows_10_times_within_0.02": Scene(golden_copies=10, golden_noise=0.02),
    "golden_rows_10_times_within_0.05": Scene(golden_copies=10, golden_noise=0.05),
    "requests_10_times": Scene(copies=10),
    "both_5_times": Scene(golden_copies=5, golden_noise=0.005, copies=5),
    "less_sure_0.8": Scene(spread=0.8),
    "less_sure_0.6": Scene(spread=0.6),
    "less_sure_0.4": Scene(spread=0.4),
    "concept_10_percent": Scene(flipped=0.1),
    "concept_30_percent": Scene(flipped=0.3),
}


def estimates(*, quick: bool = False) -> Iterator[Figure]:
    """Coverage of the accuracy of a window that a logistic model answered."""
    for name, scene in ESTIMATES.items():
        yield _estimates(
            name, [_window(n, scene) for n in range(_runs(WINDOWS, quick))]
        )


def digits(*, quick: bool = False) -> Iterator[Figure]:
    """The same of real digits under noise on the inputs, beside a drift watch of them."""
    from sklearn.datasets import load_digits  # noqa: PLC0415 - 1 s, not at import

    bundle = load_digits()
    for sigma in (0, 2, 3, 4, 5, 6, 8):
        found = [
            _digits(bundle.data, bundle.target, sigma, number)
            for number in range(_runs(DIGITS, quick))
        ]
        alarms = float(np.mean([alarm for *_, alarm in found]))
        yield {
            **_estimates(f"digits_noise_{sigma}", [one[:2] for one in found]),
            "drift_alarm": round(alarms, 4),
        }


def scores(*, quick: bool = False) -> Iterator[Figure]:
    """Coverage of golden scores' intervals: what the model scores on such inputs."""
    runs = _runs(2000, quick)
    for accuracy in (0.7, 0.9, 0.97):
        for rows in (50, 449):
            for copies in (1, 10):
                rng = np.random.default_rng([figures.SEED, rows, copies])
                groups = np.repeat(np.arange(rows), copies)
                worth = copies_inflation(groups).effective_samples(groups.size)
                shares = rng.binomial(rows, accuracy, runs) / rows
                ends = [share_interval(share, worth) for share in shares.tolist()]
                inside = [low <= accuracy <= high for low, high in ends]
                name = f"score_{accuracy:g}_of_{rows}_{copies}_times"
                yield _coverage(name, inside, width=_median_width(ends))


def forecasts(*, quick: bool = False) -> Iterator[Figure]:
    """Coverage of the date on which a decay by 8 deviations of its noise passes a floor."""
    for power in (1.0, 1.5, 2.0, 3.0, 0.5):
        for correlation in (0.0, 0.5):
            for windows in (40, 80):
                found = [
                    _dated(number, power, correlation, windows)
                    for number in range(_runs(SERIES, quick))
                ]
                dates = [one for one in found if isinstance(one, tuple)]
                yield _coverage(
                    f"date_power_{power:g}_correlation_{correlation:g}_of_{windows}",
                    [inside for inside, _ in dates],
                    GOAL_OF_DATES,
                    series=len(found),
                    curved=found.count(Outlook.CURVED),
                    without_end=sum(endless for _, endless in dates),
                )


def _runs(most: int, quick: bool) -> int:
    return 10 if quick else most


def _window(number: int, scene: Scene) -> tuple[Estimate, float]:
    """The estimate of one window, and how much of it was right."""
    rng = np.random.default_rng([figures.SEED, number])
    golden, right = _answered(rng, GOLDEN_ROWS // scene.golden_copies, scene=Scene())
    golden = np.repeat(golden, scene.golden_copies, axis=0)
    golden += scene.golden_noise * rng.normal(size=golden.shape)
    right = np.repeat(right, scene.golden_copies)
    found = calibrate(_confidence(golden), right, groups_of({"x": golden}))
    asked, right = _answered(rng, ROWS // scene.copies, scene=scene)
    asked = np.repeat(asked, scene.copies, axis=0)
    if found is None:
        raise AssertionError("there are golden rows")
    return found.estimate(_confidence(asked), row_hashes([asked])), float(right.mean())


_LOGITS = 1.5
_TOO_SURE = 1.4
"""Factor of the model's logits over the true ones."""


def _answered(
    rng: np.random.Generator, rows: int, *, scene: Scene
) -> tuple[Floats, Floats]:
    """Inputs, and whether the model's answer to each is right."""
    inputs = scene.spread * rng.normal(size=(rows, WIDTH))
    sure = 1.0 / (1.0 + np.exp(-_LOGITS * np.abs(inputs[:, 0])))
    right = rng.random(rows) < sure
    flipped = rng.random(rows) < scene.flipped
    return inputs, (right ^ flipped).astype(np.float64)


def _confidence(inputs: Floats) -> Floats:
    return 1.0 / (1.0 + np.exp(-_TOO_SURE * _LOGITS * np.abs(inputs[:, 0])))


def _digits(
    pixels: Floats, labels: NDArray[np.int64], sigma: float, number: int
) -> tuple[Estimate, float, bool]:
    from sklearn.naive_bayes import GaussianNB  # noqa: PLC0415 - 1 s, not at import

    rng = np.random.default_rng([figures.SEED, number])
    order = rng.permutation(len(labels))
    train, golden, asked = np.split(order, [600, 1200])
    model = GaussianNB(var_smoothing=0.1).fit(pixels[train], labels[train])
    known = model.predict_proba(pixels[golden])
    right = (known.argmax(axis=1) == labels[golden]).astype(np.float64)
    found = calibrate(known.max(axis=1), right, groups_of({"x": pixels[golden]}))
    blurred = pixels[asked] + rng.normal(0, sigma, pixels[asked].shape)
    answers = model.predict_proba(blurred)
    truth = float((answers.argmax(axis=1) == labels[asked]).mean())
    if found is None:
        raise AssertionError("there are golden rows")
    estimate = found.estimate(answers.max(axis=1), row_hashes([blurred]))
    schema = Schema.from_tensors([Tensor("x", "FP32", (64,))])
    profile = fit(schema, {"x": pixels[train].astype(np.float32)})
    window = profile.accumulator()
    window.update({"x": blurred.astype(np.float32)})
    return estimate, truth, Monitor(profile).update(window.take()).alarm


def _dated(
    number: int, power: float, correlation: float, windows: int
) -> Outlook | tuple[bool, bool]:
    """Return whether the interval holds the true date, and whether it is open; else the reason for no date."""
    rng = np.random.default_rng([figures.SEED, number, windows])
    noise = rng.normal(size=windows + 100)
    for place in range(1, noise.size):
        fresh = math.sqrt(1.0 - correlation**2) * noise[place]
        noise[place] = correlation * noise[place - 1] + fresh
    level = 0.95 - 0.08 * (np.arange(3 * windows) / windows) ** power
    ahead = rng.uniform(1.0, 0.9 * windows)
    floor = float(np.interp(windows - 1 + ahead, np.arange(3 * windows), level))
    found = forecast(level[:windows] + 0.01 * noise[100:], floor, rng)
    if found.outlook is not Outlook.DECAY:
        return found.outlook
    return found.low <= ahead <= found.high, math.isinf(found.high)


def _estimates(name: str, found: list[tuple[Estimate, float]]) -> Figure:
    return _coverage(
        name,
        [one.low <= truth <= one.high for one, truth in found],
        all_conditions=round(
            float(np.mean([all(one.conditions.values()) for one, _ in found])), 4
        ),
        width=_median_width([(one.low, one.high) for one, _ in found]),
        estimate=round(float(np.mean([one.accuracy for one, _ in found])), 4),
        truth=round(float(np.mean([truth for _, truth in found])), 4),
    )


def _coverage(
    name: str, inside: list[bool], goal: float = GOAL, **more: object
) -> Figure:
    value = float(np.mean(inside)) if inside else math.nan
    spread = math.sqrt(goal * (1 - goal) / len(inside)) if inside else math.nan
    return {
        "name": f"honesty.accuracy.{name}",
        "value": round(value, 4) if inside else None,
        "unit": "coverage",
        "goal": goal,
        "ok": value >= goal - 2 * spread if inside else None,
        "n": len(inside),
        "standard_error": round(spread, 4) if inside else None,
        **more,
        "seed": figures.SEED,
        "measured": "intervals shown that hold the truth; ok is within two standard errors"
        " of the goal",
    }


def _median_width(ends: list[tuple[float, float]]) -> float:
    return round(float(np.median([high - low for low, high in ends])), 4)
