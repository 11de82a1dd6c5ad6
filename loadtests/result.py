"""The result of a run: times and outcome of every request, histograms, a verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence  # noqa: TC003 - pydantic reads annotations
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from typing import Annotated, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeFloat, PositiveFloat

from exporter.histograms.histogram import Histogram
from exporter.histograms.quantiles import quantile_rank

Floats = NDArray[np.float64]
Mode = Literal["open", "closed"]
UnixTime = Annotated[float, Field(ge=0, lt=253_402_300_800)]
"""Before the year 10000, so that it has a date."""


class Outcome(IntEnum):
    """Outcome of a request, as stored in `Requests.outcome`."""

    UNSENT = 0
    """The run ended before it was its turn, or the sender never came to it."""
    OK = 1
    ERROR = 2
    """The server refused it or failed, or the connection did."""
    WRONG = 3
    """Answered with success, but with a wrong answer."""
    TIMEOUT = 4
    REJECTED = 5
    """Not sent, since too many were in flight: a miss, as if it had timed out."""


@dataclass(frozen=True, slots=True)
class Requests:
    """One array element a request, in the order of `intended`.

    Times are seconds from the start of the run, NaN where it did not happen.
    """

    intended: Floats
    """Intended time of the send; in a closed loop, its real time."""
    sent: Floats
    first: Floats
    """Time of the first response; NaN where requests have one response only."""
    done: Floats
    outcome: NDArray[np.uint8]
    entry: NDArray[np.uint8]
    """Entry of the mix, an index into `About.entries`."""
    responses: NDArray[np.uint32]
    """Responses with content that came, of streams."""
    tokens: NDArray[np.uint32]
    """Output tokens that the server reported with the answer; 0 where it did not."""
    longest_gap: NDArray[np.float32]
    """Longest time between two responses, in seconds; NaN below two responses."""

    @classmethod
    def empty(cls, count: int) -> Requests:
        """Return `count` requests that have not started."""
        return cls(
            intended=np.full(count, np.nan),
            sent=np.full(count, np.nan),
            first=np.full(count, np.nan),
            done=np.full(count, np.nan),
            outcome=np.zeros(count, np.uint8),
            entry=np.zeros(count, np.uint8),
            responses=np.zeros(count, np.uint32),
            tokens=np.zeros(count, np.uint32),
            longest_gap=np.full(count, np.nan, np.float32),
        )

    @classmethod
    def joined(cls, parts: Sequence[Requests]) -> Requests:
        """Return the requests of all parts, in their order."""
        columns = (part.name for part in fields(cls))
        every = (cls.empty(0), *parts)
        return cls(
            *(np.concatenate([getattr(one, name) for one in every]) for name in columns)
        )

    def __len__(self) -> int:
        return int(self.outcome.size)

    def count(self, outcome: Outcome) -> int:
        """Return the number of requests with this outcome."""
        return int(np.count_nonzero(self.outcome == outcome))

    def where(self, chosen: NDArray[np.bool_] | NDArray[np.int64] | slice) -> Requests:
        """Return the requests chosen by a mask, by indexes or by a slice."""
        return Requests(*(getattr(self, part.name)[chosen] for part in fields(self)))

    @property
    def waits(self) -> Floats:
        """Seconds from the intended send; infinite without a correct answer."""
        return np.where(self.outcome == Outcome.OK, self.done - self.intended, np.inf)

    @property
    def mean_gap(self) -> Floats:
        """Seconds for each output token after the first; NaN where there is one at most.

        The inter-token latency of benchmarks of language models: the time
        from its first response to its last, by the tokens that the server reported, else
        by the responses, less one.
        """
        units = np.where(self.tokens > 0, self.tokens, self.responses)
        streamed = (self.responses > 1) & (units > 1)
        seconds = np.full(len(self), np.nan)
        np.divide(self.done - self.first, units - 1.0, out=seconds, where=streamed)
        return seconds

    @property
    def timed(self) -> NDArray[np.bool_]:
        """Requests whose latency counts: answered correctly, or timed out.

        Errors that come at once, or omitted timeouts, would understate the latency. Rejected
        requests have no latency; `RunResult.quantile` counts them.
        """
        ended = np.isin(self.outcome, (Outcome.OK, Outcome.TIMEOUT))
        return ended & np.isfinite(self.done)


@dataclass(frozen=True, slots=True)
class Unanswered:
    """Requests that got no answer: they could not connect, or the connection broke.

    All of them are errors; a server that answers with an error did answer.
    """

    count: int = 0
    first_seconds: float | None = None
    """Time from the start of the run at which the first of them ended; None without
    any."""
    last_seconds: float | None = None
    waited_seconds: float = 0.0
    """In a closed loop, from those to the requests that followed them: all that are
    kept in flight together."""

    def and_at(self, seconds: float) -> Unanswered:
        """Return it with one more, which ended then."""
        first = seconds if self.first_seconds is None else self.first_seconds
        return replace(
            self, count=self.count + 1, first_seconds=first, last_seconds=seconds
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict on the validity of the numbers, with the reasons."""

    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def valid(self) -> bool:
        """True if there is no reason against the numbers."""
        return not self.reasons

    def __str__(self) -> str:
        return "VALID" if self.valid else f"INVALID: {'; '.join(self.reasons)}"


@dataclass(frozen=True, slots=True)
class About:
    """Setup of a run: enough to run it again."""

    mode: Mode
    protocol: str
    address: str
    entries: tuple[str, ...]
    """Names of the entries of the mix, like "digits_fp32"."""
    seed: int
    timeout_seconds: PositiveFloat
    in_flight: int
    """Limit of requests in flight; in a closed loop, the concurrency."""
    payload_sha256: str
    started_at: UnixTime
    """Unix time."""
    schedule_seconds: NonNegativeFloat | None = None
    """Length of the schedule, idle time at its ends included; of a closed loop, the time
    after which nothing is sent."""
    profile: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    hardware: Mapping[str, Any] = field(default_factory=dict)
    workers: int = 1
    interrupted: bool = False
    goodput: str = ""
    """Limits that a request meets together to be a good one, like "ttft<500ms"."""
    slo: str = ""
    """Objective that the run is to meet, like "p99<20ms,errors<0.1%"."""
    backoff: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the client's waits: before gRPC connects again, and in a closed loop
    after a request without an answer."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """One run. The histograms hold `Requests.timed` of `requests`."""

    about: About
    requests: Requests
    from_intended: Histogram
    """Latency from the intended time: a user's waiting time."""
    from_send: Histogram
    dispatch_delay: Histogram
    """Time from the intended time to the send, of everything sent: the sender's delay."""
    first_response: Histogram
    """Time from the intended time to the first response, of streams."""
    mean_gap: Histogram
    """`Requests.mean_gap`, of streams: one value a request."""
    between_responses: Histogram
    """Time between two responses, of streams: all of them, one value a gap."""
    duration_seconds: float
    """From the start to the last answer or timeout, or to the end of the schedule if
    later; of a closed loop that was held back, to the end of the time that it was given."""
    sender_cpu_seconds: float
    verdict: Verdict = Verdict()
    errors: Mapping[str, int] = field(default_factory=dict)
    """Error messages with their counts: the first `MAX_MESSAGES` kinds."""
    unanswered: Unanswered = Unanswered()

    @classmethod
    def of(
        cls,
        about: About,
        requests: Requests,
        *,
        between_responses: Histogram | None = None,
        duration_seconds: float,
        sender_cpu_seconds: float,
        verdict: Verdict | None = None,
        errors: Mapping[str, int] | None = None,
        unanswered: Unanswered | None = None,
    ) -> RunResult:
        """Return the result of these requests, its histograms made from them."""
        made: dict[str, Any] = {**histograms_of(requests)}
        return cls(
            about=about,
            requests=requests,
            **made,
            between_responses=between_responses or Histogram(),
            duration_seconds=duration_seconds,
            sender_cpu_seconds=sender_cpu_seconds,
            verdict=verdict or Verdict(),
            errors=errors or {},
            unanswered=unanswered or Unanswered(),
        )

    def invalid(self, *reasons: str) -> RunResult:
        """Return it with further reasons against it."""
        verdict = replace(self.verdict, reasons=(*self.verdict.reasons, *reasons))
        return replace(self, verdict=verdict)

    def warned(self, *warnings: str) -> RunResult:
        """Return it with further warnings."""
        verdict = replace(self.verdict, warnings=(*self.verdict.warnings, *warnings))
        return replace(self, verdict=verdict)

    @property
    def intended_rate(self) -> float:
        """Requests due per second of the time in which they were."""
        return len(self.requests) / self.sending_seconds

    @property
    def sending_seconds(self) -> float:
        """Length of the time in which requests were due or sent: that of the rates.

        In an open loop, the schedule, or the time until the last was due. Of an overloaded
        server the last answers come long after that, and a rate over the whole run would
        hide how much was offered; a quick one has answered all before its end.
        """
        whole, schedule = self.duration_seconds, self.about.schedule_seconds
        if self.about.mode == "closed":
            return min(schedule or whole, whole)
        return schedule or float(self.requests.intended.max(initial=0.0)) or whole

    @property
    def throughput(self) -> float:
        """Correct answers per second."""
        return self.per_second(np.ones(len(self.requests)))

    def per_second(self, amounts: NDArray[Any]) -> float:
        """Return the rate of what correct answers brought: `amounts` (N,), one a request.

        A request that hangs at the end lengthens a run, and is no reason for a lower rate.
        In an open loop, it is the rate of the best window as long as the schedule: a
        server that keeps up answers as fast as it is asked, only later. In a closed loop
        an answer under way when the sends end counts by its share of the time before.
        """
        answered = self.requests.outcome == Outcome.OK
        requests, counted = self.requests.where(answered), amounts[answered]
        end = self.sending_seconds
        if self.about.mode == "closed":
            taken = np.maximum(requests.done - requests.sent, np.finfo(np.float64).tiny)
            shares = np.clip((end - requests.sent) / taken, 0.0, 1.0)
            return float((counted * shares).sum()) / end
        order = np.argsort(requests.done)
        done, sums = requests.done[order], np.cumsum([0, *counted[order]])
        found = sums[np.searchsorted(done, done + end)] - sums[:-1]
        return float(found.max(initial=0.0)) / end

    @property
    def miss_ratio(self) -> float | None:
        """Share of requests without a correct answer; None where there were none."""
        if not len(self.requests):
            return None
        return 1.0 - self.requests.count(Outcome.OK) / len(self.requests)

    def quantile(self, q: float) -> float | None:
        """Return the q-quantile of latency from the intended time over *all* requests.

        One without a correct answer counts as infinitely late, so the value is infinite
        where more than 1 - q of them had none. None without requests.
        """
        return quantile_of(self.requests.waits, q) if len(self.requests) else None


MAX_MESSAGES: Final = 20
"""Limit of the kinds of error messages that are kept of a run."""


def finite(value: float) -> float | None:
    """Return the value; None where it is infinite or NaN."""
    return value if math.isfinite(value) else None


def quantile_of(values: Floats, q: float) -> float:
    """Return a quantile by the inverse distribution function; NaN without values."""
    if not values.size:
        return np.nan
    rank = quantile_rank(values.size, q) - 1
    return float(np.partition(values, rank)[rank])


HISTOGRAMS: Final = (
    "from_intended",
    "from_send",
    "dispatch_delay",
    "first_response",
    "mean_gap",
)
"""Names of the histograms that are computed from requests."""


def seconds_over_all(requests: Requests) -> dict[str, Floats]:
    """Return times over all requests, in order, by the name of their histogram.

    Without a correct answer they are infinite, so that a quantile counts every miss. Those
    of streams are over the entries of the mix that stream; answers of one response or
    token have no gap and are left out.
    """
    streaming = np.unique(requests.entry[requests.responses > 0])
    streams = requests.where(np.isin(requests.entry, streaming))
    answered = requests.outcome == Outcome.OK
    begun = streams.outcome == Outcome.OK
    gaps = np.where(begun, streams.mean_gap, np.inf)
    return {
        "from_intended": requests.waits,
        "from_send": np.where(answered, requests.done - requests.sent, np.inf),
        "first_response": np.where(begun, streams.first - streams.intended, np.inf),
        "mean_gap": gaps[~np.isnan(gaps)],
    }


def measured_seconds(requests: Requests) -> dict[str, Floats]:
    """Return the finite values of each of `HISTOGRAMS`, by name."""
    timed = requests.where(requests.timed)
    return {
        "from_intended": _finite_values(timed.done - timed.intended),
        "from_send": _finite_values(timed.done - timed.sent),
        "dispatch_delay": _finite_values(requests.sent - requests.intended),
        "first_response": _finite_values(timed.first - timed.intended),
        "mean_gap": _finite_values(timed.mean_gap),
    }


def histograms_of(requests: Requests) -> dict[str, Histogram]:
    """Return the histograms that can be computed from the requests, by name."""
    return {name: histogram_of(s) for name, s in measured_seconds(requests).items()}


def histogram_of(seconds: Floats) -> Histogram:
    """Return a histogram of the finite values; negative ones, from a clock's steps, are 0."""
    histogram = Histogram()
    histogram.record_many(_finite_values(seconds))
    return histogram


def _finite_values(seconds: Floats) -> Floats:
    return np.maximum(seconds[np.isfinite(seconds)], 0.0)
