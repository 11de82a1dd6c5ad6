"""A Triton that counts everybody's requests at ticks of its own, and hypothesis' way to fill it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import strategies as st

from exporter import errors
from exporter.access.own_traffic import OwnTraffic
from exporter.features.statistics.production_counts import Production
from exporter.triton.protocol_types import BatchStatistics, Duration, ModelStatistics

KEY = ("m", "1")
TICKS = 10  # from look to look
LOOK_TICKS = 3  # from reading the statistics to reading the ledger
LAG_TICKS = 6  # Triton books at the latest so long after the answer
REQUEST_NS, PHASE_NS = 1000, 100


@dataclass(frozen=True)
class Own:
    """One of ours: Triton books it at `booked`, the answer is here at `finished`."""

    started: int
    finished: int
    booked: int
    batch: int = 1
    ending: str = "ok"


@dataclass(frozen=True)
class Client:
    """One of production's."""

    booked: int
    batch: int = 1
    ok: bool = True


@dataclass
class Triton:
    """Cumulative counters of one model, as the statistics API has them."""

    success: int = 0
    fail: int = 0
    inferences: int = 0
    batches: Counter = field(default_factory=Counter)

    def book(self, request: Own | Client) -> None:
        is_client = isinstance(request, Client)
        ok = request.ok if is_client else request.ending in {"ok", "as_success"}
        self.success += ok
        self.fail += not ok
        if ok:
            self.inferences += request.batch
            self.batches[request.batch] += 1

    def statistics(self) -> ModelStatistics:
        def times(count: int) -> Duration:
            return Duration(count, count * PHASE_NS)

        return ModelStatistics(
            *KEY,
            inference_count=self.inferences,
            execution_count=sum(self.batches.values()),
            success=Duration(self.success, self.success * REQUEST_NS),
            fail=Duration(self.fail, self.fail * REQUEST_NS),
            queue=times(self.success),
            compute_input=times(self.success),
            compute_infer=times(self.success),
            compute_output=times(self.success),
            batches=tuple(
                BatchStatistics(size, times(n), times(n), times(n))
                for size, n in sorted(self.batches.items())
            ),
        )


ENDINGS = {
    "ok": None,
    "failed": errors.ModelError("x"),
    "as_success": errors.ModelError("x"),
    "refused": errors.InvalidRequestError("x"),
    "unreached": errors.UnreachableError("x"),
}
NEVER_BOOKED = {"refused", "unreached"}


class Simulation:
    """Plays requests in the order of their ticks and looks every TICKS.

    Nobody answers in the ticks of `away`; a new server does after them.
    """

    def __init__(self, own=(), clients=(), resets=(), first_look=0, away=range(0)):
        self.ledger = OwnTraffic(run_id="test")
        self.triton = Triton()
        self.production = None
        self.before = None
        self.seen = []  # (totals, truth) at each look
        self.gone = None
        self._open = {}
        events = [(tick, 0, self._reset, None) for tick in resets]
        events += [(c.booked, 1, self.triton.book, c) for c in clients]
        for request in own:
            events.append((request.started, 1, self._begin, request))
            if request.ending not in NEVER_BOOKED:
                events.append((request.booked, 2, self.triton.book, request))
            events.append((request.finished, 3, self._end, request))
        last = max([first_look, *(event[0] for event in events)])
        for look in range(first_look, last + 4 * TICKS, TICKS):
            if look in away:
                events.append((look, 4, self._find_nobody, None))
                continue
            events.append((look, 4, self._read, None))
            events.append((look + LOOK_TICKS, 5, self._look, None))
        events += [(away.stop, 0, self._reset, None)] if away else []
        self._truth = Triton()
        for event in sorted(events, key=lambda event: event[:2]):
            _, _, act, request = event
            act(*(() if request is None else (request,)))
            if isinstance(request, Client):
                self._truth.book(request)

    def _begin(self, request):
        context = self.ledger.request([(KEY, request.batch)])
        context.__enter__()
        self._open[id(request)] = context

    def _end(self, request):
        error = ENDINGS[request.ending]
        context = self._open.pop(id(request))
        try:
            context.__exit__(type(error) if error else None, error, None)
        except errors.TritonError:
            assert error is not None

    def _reset(self):
        self.triton.__init__()

    def _find_nobody(self):
        self.gone = self.gone or self.ledger.counts(KEY)

    def _read(self):
        if self.production is None:
            self.production = Production(self.ledger.counts(KEY))
        self.raw = self.triton.statistics()
        self.ours = self.ledger.counts(KEY)
        self.truth = self._truth.statistics()

    def _look(self):
        before = self.raw if self.before is None else self.before
        own = self.ledger.counts(KEY)
        self.production.advance(before, self.raw, own, self.ours, self.gone)
        self.before, self.gone = self.raw, None
        totals = self.production.totals
        self.seen.append((counts_of(totals), truth_of(self.truth)))


def counts_of(totals):
    sizes = {f"batch {size}": n for size, n in totals.batches.items() if n}
    return Counter(
        success=totals.success,
        failure=totals.failure,
        inferences=totals.inferences,
        executions=totals.executions,
        **sizes,
    )


def truth_of(statistics):
    sizes = {
        f"batch {batch.batch_size}": batch.compute_infer.count
        for batch in statistics.batches
    }
    return Counter(
        success=statistics.success.count,
        failure=statistics.fail.count,
        inferences=statistics.inference_count,
        executions=statistics.execution_count,
        **sizes,
    )


BATCHES = st.sampled_from([1, 1, 1, 4])


@st.composite
def own_requests(draw, endings=("ok", "ok", "unreached")):
    started = draw(st.integers(1, 60))
    finished = started + draw(st.integers(0, 35))
    booked = draw(st.integers(started, finished + LAG_TICKS))
    return Own(started, finished, booked, draw(BATCHES), draw(st.sampled_from(endings)))


CLIENTS = st.builds(Client, st.integers(1, 80), BATCHES, st.booleans())
OWN = st.lists(own_requests(), max_size=8)
OWN_IN_DOUBT = st.lists(own_requests(tuple(ENDINGS)), max_size=8)
PRODUCTION = st.lists(CLIENTS, max_size=12)
