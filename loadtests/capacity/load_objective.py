"""Objectives: `p99<20ms,errors<0.1%` as numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from loadtests.errors import PlanError
from loadtests.result import Outcome

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from loadtests.result import Requests

_UNITS: Final = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
_WANT: Final = (
    "want terms like p99<20ms, p99.9<=0.5s or errors<0.1%, separated by commas"
)
_LATENCY: Final = re.compile(r"p(\d+(?:\.\d+)?)\s*<=?\s*(\d+(?:\.\d+)?)\s*([a-zµ]*)")
_ERRORS: Final = re.compile(r"errors?\s*<=?\s*(\d+(?:\.\d+)?)\s*(%?)")


@dataclass(frozen=True, slots=True)
class Term:
    """One term of an objective: at most `allowed_ratio` of all requests may miss.

    With a limit a miss is a request without a right answer within `limit_seconds`,
    counted from the intended send; without one, a request without a right answer.
    Shed, rejected and lost requests are misses of both.
    """

    text: str
    allowed_ratio: float
    limit_seconds: float | None = None

    def misses(self, requests: Requests) -> NDArray[np.bool_]:
        """Return a mask (N,) of the requests that miss."""
        failed: NDArray[np.bool_] = requests.outcome != Outcome.OK
        if self.limit_seconds is None:
            return failed
        # NaN, where there was no answer, is not within the limit either.
        late = ~(requests.done - requests.intended <= self.limit_seconds)
        return failed | late


@dataclass(frozen=True, slots=True)
class Slo:
    """An objective whose terms must all be met."""

    terms: tuple[Term, ...]

    @property
    def text(self) -> str:
        """The objective as written in options, and in the label `slo`."""
        return ",".join(term.text for term in self.terms)

    @property
    def limit_seconds(self) -> float | None:
        """The shortest latency limit."""
        limits = [t.limit_seconds for t in self.terms if t.limit_seconds is not None]
        return min(limits, default=None)

    @property
    def allowed(self) -> NDArray[np.float64]:
        """The share (K,) that may miss, a term each."""
        return np.array([term.allowed_ratio for term in self.terms])

    def misses(self, requests: Requests) -> NDArray[np.bool_]:
        """Return a mask (N, K) of the requests that miss each term."""
        return np.stack([term.misses(requests) for term in self.terms], axis=1)


def parse(text: str) -> Slo:
    """The objective that `text` states.

    Raises:
        PlanError: it states none; the message has the term and what would be right.
    """
    parts = [part.strip() for part in text.split(",")]
    terms = tuple(_term(part) for part in parts)
    doubled = {t.text for t in terms if [u.text for u in terms].count(t.text) > 1}
    if doubled:
        raise PlanError(f"found {min(doubled)!r} twice", "--slo")
    return Slo(terms)


def _term(part: str) -> Term:
    lowered = part.lower()
    if found := _LATENCY.fullmatch(lowered):
        return _latency(part, *found.groups())
    if found := _ERRORS.fullmatch(lowered):
        share = float(found[1]) / (100.0 if found[2] else 1.0)
        if not 0 < share < 1:
            raise PlanError(
                f"found {part!r}; want a share above 0 % and below 100 %, like "
                "errors<0.1%",
                "--slo",
            )
        return Term(f"errors<{share * 100:g}%", share)
    raise PlanError(f"found {part!r}; {_WANT}", "--slo")


def _latency(part: str, percentile: str, amount: str, unit: str) -> Term:
    if unit not in _UNITS:
        raise PlanError(
            f"found {part!r} with {f'unit {unit!r}' if unit else 'no unit'}; "
            f"want one of {', '.join(_UNITS)}, like p99<20ms",
            "--slo",
        )
    share, limit = float(percentile), float(amount) * _UNITS[unit]
    if not 0 < share < 100:  # noqa: PLR2004 - percent
        raise PlanError(
            f"found {part!r}; want a percentile above 0 and below 100", "--slo"
        )
    if limit <= 0:
        raise PlanError(f"found {part!r}; want a limit above 0", "--slo")
    shown = f"p{percentile}<{amount}{unit}"
    return Term(shown, round(1.0 - share / 100.0, 12), limit)
