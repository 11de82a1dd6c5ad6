"""A soak: random faults, one after another, and a test for growth of the sidecar.

It is an ordinary experiment whose method is drawn from a seed, and is run, undone and
reported like any other. In addition, the trend of the sidecar's memory and descriptors over
time is tested.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from exporter.settings import Settings
from loadtests.chaos import experiment
from loadtests.chaos.activities import TOOLKIT
from loadtests.chaos.measuring.observations import NAME, UP
from loadtests.chaos.measuring.polling import OPEN_FDS, RESIDENT
from pages.blocks import Document, Facts, Items

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loadtests.chaos.experiment import Loaded
    from loadtests.chaos.measuring.findings import Findings, Verdict
    from loadtests.chaos.measuring.observations import Evidence, Series

MODEL: Final = "digits_fp32"
FAULTS: Final[tuple[tuple[dict[str, Any], float], ...]] = (
    ({"kind": "kill_server"}, 2.0),
    ({"kind": "freeze_server"}, 1.0),
    ({"kind": "kill_stub", "model": MODEL}, 2.0),
    ({"kind": "freeze_stub", "model": MODEL}, 0.5),
    ({"kind": "unload_model", "model": MODEL}, 2.0),
    ({"kind": "erring_model", "model": MODEL, "share": 0.5}, 2.0),
    ({"kind": "lying_model", "model": MODEL, "lie": "nan"}, 2.0),
    ({"kind": "network_delay", "delay_ms": 50.0}, 2.0),
    ({"kind": "network_loss", "loss_percent": 10.0}, 2.0),
    ({"kind": "bandwidth", "kilobits_per_second": 64.0}, 2.0),
    ({"kind": "partition"}, 2.0),
    ({"kind": "reset"}, 2.0),
)
"""Faults to draw from, each with its seconds: none that needs a privilege or that ends
or stops the sidecar, whose memory is measured.
"""

GROWTH_BYTES_PER_HOUR: Final = 2e6
"""More than that, with certainty and to the end, is a leak."""
_PAUSE_SECONDS: Final = 8.0
"""Mean time between faults; enough to be served again."""
_LONGEST: Final = 90
"""Faults of one soak: a method has an end."""
_WARM_UP_SHARE: Final = 0.25
_BLOCK_SECONDS: Final = 60.0
"""Scrapes of this time count as one value, their median: memory goes in steps."""
_LEAST_BLOCKS: Final = 8
_LEAST_SECONDS: Final = 600.0
"""Shorter than that after the warm-up, an hourly slope means nothing."""
_FLAT: Final = 4
"""Descriptors more than after the warm-up: connections come and go."""


class Soak(Settings):
    """The sidecar's footprint over a soak, without the warm-up. None is unknown."""

    faults: int
    watched_seconds: float
    resident_bytes_first: float | None
    resident_bytes_last: float | None
    growth_bytes_per_hour: float | None
    """Mean growth by the minute, from the first block to the last."""
    growth_low: float | None
    growth_high: float | None
    """Its 95 % interval: Student's, of the growth by the minute.

    Memory grows in steps that stay, so the steps are independent of each other and the
    residuals of a line are not: an interval of a line's slope (like Sen's) holds the true
    growth in two of five cases."""
    growth_late: float | None
    """The same growth over the second half. What fills (windows of five minutes, arenas)
    reaches its limit, and growth slows; a leak continues."""
    open_fds_growth: int | None
    scrapes: int
    """Of the whole soak."""
    failed_scrapes: int

    @property
    def broken(self) -> tuple[str, ...]:
        """The faults of the sidecar, in sentences."""
        low, late = self.growth_low, self.growth_late
        problems = []
        if (
            low is not None
            and late is not None
            and min(low, late) > GROWTH_BYTES_PER_HOUR
        ):
            problems.append(
                f"resident memory grew by at least {low / 1e6:.2g} MB an hour, and by "
                f"{late / 1e6:.2g} in the second half; at most "
                f"{GROWTH_BYTES_PER_HOUR / 1e6:g} are wanted"
            )
        if self.open_fds_growth is not None and self.open_fds_growth > _FLAT:
            problems.append(
                f"{self.open_fds_growth} descriptors more than after the warm-up"
            )
        if not self.scrapes:
            problems.append("the sidecar was never scraped")
        elif self.failed_scrapes:
            problems.append(
                "the sidecar did not stay up: "
                f"{self.failed_scrapes} of {self.scrapes} scrapes failed"
            )
        return tuple(problems)

    @property
    def undecided(self) -> tuple[str, ...]:
        """Sentences about what the soak could not decide."""
        limit, high = GROWTH_BYTES_PER_HOUR, self.growth_high
        if self.broken or (high is not None and high <= limit):
            return ()
        want = f"growth of more than {limit / 1e6:g} MB an hour"
        return (f"{want} is not excluded: take longer, with --minutes",)


def drawn(minutes: float, seed: int) -> Loaded:
    """Return the experiment of a soak of about this length.

    Raises:
        ValueError: it is longer than one method can be.
    """
    rng = random.Random(seed)  # noqa: S311 - an order, no secret
    method: list[dict[str, Any]] = []
    left, spent = minutes * 60, 0.0
    mean = _PAUSE_SECONDS + sum(seconds for _, seconds in FAULTS) / len(FAULTS)
    pause = max(_PAUSE_SECONDS, left / _LONGEST - (mean - _PAUSE_SECONDS))
    bag: list[tuple[dict[str, Any], float]] = []
    while spent < left and len(method) < 2 * _LONGEST:
        if not bag:
            # Every fault comes once before one comes twice.
            bag = rng.sample(FAULTS, len(FAULTS))
        fault, seconds = bag.pop()
        rest = rng.uniform(0.75, 1.25) * pause
        method += [
            _activity(fault["kind"], "inject", {"fault": fault}, seconds),
            _activity(f"undo {fault['kind']}", "undo", None, rest),
        ]
        spent += seconds + rest
    return experiment.parse(_document(minutes, seed, method), f"soak-{seed}")


def _activity(
    name: str, function: str, arguments: Mapping[str, Any] | None, seconds: float
) -> dict[str, Any]:
    provider: dict[str, Any] = {
        "type": "python",
        "module": TOOLKIT,
        "func": function,
    }
    if arguments is not None:
        provider["arguments"] = arguments
    return {
        "type": "action",
        "name": name.replace("_", " "),
        "provider": provider,
        "pauses": {"after": round(seconds, 3)},
    }


def _document(
    minutes: float, seed: int, method: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    return {
        "version": "1.0.0",
        "title": f"Random faults for {minutes:g} minutes",
        "description": "Users are served again after each fault, and nothing grows.",
        "tags": ["soak"],
        "method": list(method),
        "rollbacks": [_activity("undo", "undo", None, 0.0)],
        "extensions": [
            {
                "name": NAME,
                "target": {
                    "kind": "embedded",
                    "models": [MODEL],
                    "proxy": True,
                    "sidecar": {},
                },
                "load": {
                    "models": [{"model": MODEL}],
                    "profile": {"kind": "poisson", "requests_per_second": 20},
                },
                "timing": {"before_seconds": 5, "after_seconds": 10},
                "recovery": {"hold_seconds": 2.0},
                "seed": seed,
            }
        ],
    }


def soaked(evidence: Evidence) -> Soak:
    """Return how the sidecar's footprint went over a soak."""
    up = evidence.of_metric(UP)
    end = up[0].at_seconds[-1] if up else 0.0
    scrapes = up[0].values if up else ()
    warm = _WARM_UP_SHARE * end
    resident = _blocks(evidence.of_metric(RESIDENT), warm)
    descriptors = _blocks(evidence.of_metric(OPEN_FDS), warm)
    slope, late = _slope(resident), None
    if slope[0] is not None:
        late = _slope_of(resident[len(resident) // 2 :])[0]
    return Soak(
        faults=sum(event.what == "injected" for event in evidence.events),
        watched_seconds=end - warm,
        resident_bytes_first=float(resident[0, 1]) if len(resident) else None,
        resident_bytes_last=float(resident[-1, 1]) if len(resident) else None,
        growth_bytes_per_hour=slope[0],
        growth_low=slope[1],
        growth_high=slope[2],
        growth_late=late,
        open_fds_growth=_rise(descriptors),
        scrapes=len(scrapes),
        failed_scrapes=scrapes.count(0),
    )


def _rise(blocks: np.ndarray) -> int | None:
    """Return the rise from the first quarter of the blocks to the last, by medians."""
    if len(blocks) < 2:  # noqa: PLR2004 - a first and a last
        return None
    quarter = max(1, len(blocks) // 4)
    first, last = blocks[:quarter, 1], blocks[-quarter:, 1]
    return round(float(np.median(last) - np.median(first)))


def _blocks(series: Sequence[Series], since: float) -> np.ndarray:
    """(N, 2): the middle of each block in seconds, and the median of its values."""
    blocks: dict[int, list[float]] = {}
    for one in series:
        for at, value in zip(one.at_seconds, one.values, strict=True):
            if at >= since:
                blocks.setdefault(int(at // _BLOCK_SECONDS), []).append(value)
    rows = [
        ((block + 0.5) * _BLOCK_SECONDS, float(np.median(found)))
        for block, found in sorted(blocks.items())
    ]
    return np.array(rows).reshape(-1, 2)


def _slope(blocks: np.ndarray) -> tuple[float | None, float | None, float | None]:
    """Bytes an hour with their interval; None where they cover too short a time."""
    if len(blocks) < _LEAST_BLOCKS or blocks[-1, 0] - blocks[0, 0] < _LEAST_SECONDS:
        return None, None, None
    return _slope_of(blocks)


def _slope_of(blocks: np.ndarray) -> tuple[float, float, float]:
    from scipy.stats import t  # noqa: PLC0415 - heavy, only here

    hours, grown = np.diff(blocks[:, 0]) / 3600.0, np.diff(blocks[:, 1])
    mean = float(grown.sum() / hours.sum())
    # Over a longer gap, where a block is missing, more may come together.
    errors = (grown - mean * hours) ** 2
    freedom = len(grown) - 1
    spread = np.sqrt(errors.sum() * len(grown) / freedom) / hours.sum()
    half = float(t.ppf(0.975, freedom) * spread)
    return mean, mean - half, mean + half


def verdict_of(soak: Soak, judged: Findings) -> Verdict:
    """Return the verdict on users and sidecar together."""
    if soak.broken and judged.verdict != "failed":
        return "finding"
    return "invalid" if judged.verdict == "held" and soak.undecided else judged.verdict


def soak_document(soak: Soak, judged: Findings) -> Document:
    """Return the report of a soak."""
    back = [fault.recovery.state for fault in judged.faults if fault.recovery]
    served = sum(state in {"recovered", "unaffected"} for state in back)
    sidecar = {
        "seconds after the warm-up": f"{soak.watched_seconds:.0f}",
        "resident memory": f"{_mega(soak.resident_bytes_first)} to "
        f"{_mega(soak.resident_bytes_last)}",
        "growth an hour": f"{_mega(soak.growth_bytes_per_hour)} "
        f"[{_mega(soak.growth_low)}, {_mega(soak.growth_high)}], "
        f"{_mega(soak.growth_late)} in the second half; wanted are at most "
        f"{_mega(GROWTH_BYTES_PER_HOUR)}",
        "descriptors": "unknown"
        if soak.open_fds_growth is None
        else f"{soak.open_fds_growth:+d}",
    }
    title = (
        f"soak: {verdict_of(soak, judged).upper()}; {soak.faults} faults, "
        f"served again after {served} of {len(back)}"
    )
    reasons = (*judged.reasons, *soak.broken, *soak.undecided)
    return Document(title, (Facts(sidecar), Items(reasons)))


def _mega(value: float | None) -> str:
    return "unknown" if value is None else f"{value / 1e6:.2f} MB"
