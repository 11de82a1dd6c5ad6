"""Objectives: `p99<20ms,errors<0.1%` as numbers, and the limits of goodput.

Measures of streamed answers, as benchmarks name them: `ttft` is the time to the first response,
`itl` a request's mean time for each output token after the first (`Requests.mean_gap`),
`stall` its longest time between two responses.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, get_args

import numpy as np

from loadtests.errors import PlanError
from loadtests.result import Outcome

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from loadtests.result import Requests

_UNITS: Final = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
Measure = Literal["latency", "ttft", "itl", "stall"]
_WANT: Final = (
    "want terms like p99<20ms, ttft_p99<=0.5s or errors<0.1%, separated by commas"
)
_WANT_LIMITS: Final = f"want limits like ttft<500ms of {', '.join(get_args(Measure))}, separated by commas"
_AMOUNT: Final = r"\s*<=?\s*(\d+(?:\.\d+)?)\s*([a-zµ]*)"
_LATENCY: Final = re.compile(rf"(?:(ttft|itl|stall)_)?p(\d+(?:\.\d+)?){_AMOUNT}")
_LIMIT: Final = re.compile(rf"(latency|ttft|itl|stall){_AMOUNT}")
_ERRORS: Final = re.compile(r"errors?\s*<=?\s*(\d+(?:\.\d+)?)\s*(%?)")


@dataclass(frozen=True, slots=True)
class Term:
    """One term of an objective: at most `allowed_ratio` of all requests may miss.

    With a limit a miss is a request without a correct answer within `limit_seconds`, where
    latency and the time to the first response count from the intended send; without one,
    a request without a correct answer. Shed, rejected and lost requests are misses of all,
    and so are answers that were not streamed where the term is about streams.
    """

    text: str
    allowed_ratio: float
    limit_seconds: float | None = None
    measure: Measure = "latency"

    def misses(self, requests: Requests) -> NDArray[np.bool_]:
        """Return a mask (N,) of the requests that miss."""
        failed: NDArray[np.bool_] = requests.outcome != Outcome.OK
        if self.limit_seconds is None:
            return failed
        # NaN, where there was no answer, is not within the limit either.
        late = ~(seconds_of(requests, self.measure) <= self.limit_seconds)
        return failed | (late & ~self.gapless(requests))

    def gapless(self, requests: Requests) -> NDArray[np.bool_]:
        """Return a mask (N,) of correct answers of one response or token, for a term on gaps.

        They have nothing to measure. Goodput and capacity searches count them as within
        the limit.
        """
        found: NDArray[np.bool_] = requests.responses > 0
        if self.measure not in {"itl", "stall"}:
            return np.zeros_like(found)
        found &= requests.outcome == Outcome.OK
        found[np.isfinite(seconds_of(requests, self.measure))] = False
        return found

    def unmeasured(self, requests: Requests) -> str:
        """Return why no correct answer has a value of this measure; empty where one has.

        Also empty without correct answers: all requests are misses then, which is a result.
        """
        if not len(requests):
            return "no request was sent"
        answered = requests.where(requests.outcome == Outcome.OK)
        known = np.isfinite(seconds_of(answered, self.measure)).any()
        if known or not len(answered) or self.limit_seconds is None:
            return ""
        if not answered.responses.any():
            return "no answer was streamed"
        return "every answer had a single response or token"


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
        """The shortest limit that counts from the intended send."""
        limits = [
            term.limit_seconds
            for term in self.terms
            if term.limit_seconds is not None and term.measure in ("latency", "ttft")
        ]
        return min(limits, default=None)

    @property
    def whole_answer_seconds(self) -> float | None:
        """The longest limit on whole answers; None where a term concerns parts of streams."""
        timed = [term for term in self.terms if term.limit_seconds is not None]
        if any(term.measure != "latency" for term in timed):
            return None
        return max((t.limit_seconds or 0.0 for t in timed), default=None)

    @property
    def allowed(self) -> NDArray[np.float64]:
        """The share (K,) that may miss, a term each."""
        return np.array([term.allowed_ratio for term in self.terms])

    def misses(self, requests: Requests) -> NDArray[np.bool_]:
        """Return a mask (N, K) of the requests that miss each term."""
        return np.stack([term.misses(requests) for term in self.terms], axis=1)

    def unmeasured(self, requests: Requests) -> str:
        """Return the terms of which no answer has a value, with the reasons; empty without any."""
        reasons = {term.text: term.unmeasured(requests) for term in self.terms}
        return "; ".join(f"{text}: {why}" for text, why in reasons.items() if why)

    def good(self, requests: Requests) -> NDArray[np.bool_]:
        """Return a mask (N,) of the requests that miss none of the terms."""
        return np.logical_not(np.asarray(self.misses(requests).any(axis=1)))


def seconds_of(requests: Requests, measure: Measure) -> NDArray[np.floating]:
    """Return the times (N,) of a measure; NaN where there is none."""
    match measure:
        case "latency":
            return requests.done - requests.intended
        case "ttft":
            return requests.first - requests.intended
        case "itl":
            return requests.mean_gap
        case "stall":
            return requests.longest_gap


def parse_limits(text: str) -> Slo:
    """Return the limits of goodput that `text` states, as terms that no request may miss.

    Raises:
        PlanError: it states no limits.
    """
    terms: list[Term] = []
    for part in text.split(","):
        found = _LIMIT.fullmatch(part.strip().lower())
        if found is None:
            raise PlanError(f"found {part.strip()!r}; {_WANT_LIMITS}", "--goodput")
        measure, amount, unit = found.groups()
        limit = _limit(part.strip(), amount, unit, "--goodput")
        terms.append(Term(f"{measure}<{amount}{unit}", 0.0, limit, _measure(measure)))
    return Slo(tuple(terms))


def _measure(text: str | None) -> Measure:
    return next(one for one in get_args(Measure) if one == (text or "latency"))


def _limit(part: str, amount: str, unit: str, option: str) -> float:
    if unit not in _UNITS:
        raise PlanError(
            f"found {part!r} with {f'unit {unit!r}' if unit else 'no unit'}; "
            f"want one of {', '.join(_UNITS)}, like 20ms",
            option,
        )
    limit = float(amount) * _UNITS[unit]
    if limit <= 0:
        raise PlanError(f"found {part!r}; want a limit above 0", option)
    return limit


def parse(text: str) -> Slo:
    """Return the objective that `text` states.

    Raises:
        PlanError: it states no objective; the message has the term and what would be right.
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
                f"found {part!r}; want a share between 0 % and 100 %, like errors<0.1%",
                "--slo",
            )
        return Term(f"errors<{share * 100:g}%", share)
    raise PlanError(f"found {part!r}; {_WANT}", "--slo")


def _latency(
    part: str, measure: str | None, percentile: str, amount: str, unit: str
) -> Term:
    limit = _limit(part, amount, unit, "--slo")
    allowed = round(1.0 - float(percentile) / 100.0, 12)
    if not 0 < allowed < 1:
        raise PlanError(f"found {part!r}; want a percentile between 0 and 100", "--slo")
    shown = f"{f'{measure}_' if measure else ''}p{percentile}<{amount}{unit}"
    return Term(shown, allowed, limit, _measure(measure))
