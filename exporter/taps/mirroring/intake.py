"""Selects the mirrored requests to parse, and passes them on.

The selection needs only what comes before the body: whether the server has that model,
whether it has a subscriber, and the sampling rate. So most requests cost next to
nothing, and memory per model is bounded by the number of the server's own models.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from exporter import catalogue
from exporter.access.client_outcomes import ClientOutcomes
from exporter.access.inventory import find_model
from exporter.access.mirror_hub import Mirrored
from exporter.access.own_traffic import REQUEST_ID_PREFIX
from exporter.samples import Sample

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Mapping

    from exporter.access.collector_base import Access
    from exporter.access.inventory import Inventory
    from exporter.taps.mirroring.mirrored_body import Direction, Inference
    from exporter.taps.tap_route import Outcome
    from exporter.triton.protocol_types import ModelSpec

_ALL: Final = ""
"""The bucket of all models together; no model is called so."""
_WANTED_SECONDS: Final = 1.0
"""Seconds for which it is cached whether a model has a subscriber."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Samples a second: of all models together, of each, and of those named."""

    together: float
    each: float
    named: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Origin:
    """Metadata of a mirrored request: everything but its body."""

    source: str
    direction: Direction
    model: str
    version: str = ""
    request_id: str = ""


class Intake:
    """Admits requests by model, and publishes those that were parsed. Thread-safe."""

    def __init__(self, access: Access, rates: Rates, rng: random.Random) -> None:
        self._access = access
        self._rates = rates
        self._sampler = Sampler(access.clock, rng)
        self._lock = threading.Lock()
        self._inventory: Inventory | None = None
        self._known: frozenset[str] = frozenset()
        self._wanted: dict[str, bool] = {}
        self._wanted_until = 0.0
        self._samples: Counter[tuple[str, str, str]] = Counter()
        self._outcomes = ClientOutcomes("mirror", access)

    def admit(self, model: str, direction: Direction) -> Outcome | None:
        """Return why a body of this model is not read; None where it is to be read."""
        return self.admit_model(model, direction) or self.admit_any()

    def admit_model(self, model: str, direction: Direction) -> Outcome | None:
        """The same without the limit of all models together."""
        refused = self._refused(model)
        if refused is not None:
            return refused
        rate = self._rates.named.get(model, self._rates.each)
        if self._sampler.take(f"{direction}:{model}", rate):
            return None
        return "sampled_out"

    def admit_any(self) -> Outcome | None:
        """Return why a body of a still unknown model is not read; None where it is."""
        if self._sampler.take(_ALL, self._rates.together):
            return None
        return "sampled_out"

    def only_model(self) -> str | None:
        """The server's model, where it has only one."""
        self._refresh()
        return next(iter(self._known)) if len(self._known) == 1 else None

    def knows(self, model: str) -> bool:
        """Return whether the server has the model."""
        self._refresh()
        return model in self._known

    def spec(self, model: str, version: str = "") -> ModelSpec | None:
        """Return the signature of a model; None if the server does not have it."""
        return find_model(self._access.board.current, model, version)

    def publish(self, origin: Origin, inference: Inference) -> Outcome:
        """Publish an inference, unless it is one of our own."""
        request_id = inference.request_id or origin.request_id
        if request_id.startswith(REQUEST_ID_PREFIX):
            return "own"
        is_request = origin.direction == "request"
        version = origin.version or inference.version
        if not is_request:
            self._outcomes.add(
                origin.model, version, "failure" if inference.failed else "success"
            )
        if inference.failed:
            return "accepted"
        for direction, tokens in inference.tokens.items():
            self._access.work.answered(origin.model, direction, tokens)
        mirrored = Mirrored(
            origin.source,
            origin.model,
            version,
            request_id,
            inputs=inference.tensors if is_request else {},
            outputs={} if is_request else inference.tensors,
            parameters=inference.parameters,
            as_sent=inference.as_sent,
        )
        self._access.mirror.publish([mirrored])
        if inference.tensors:
            with self._lock:
                self._samples[origin.model, origin.source, origin.direction] += 1
        return "accepted"

    def samples(self) -> Iterator[Sample]:
        """Yield the number of samples passed on by model, and the outcomes of requests."""
        with self._lock:
            found = sorted(self._samples.items())
        for labels, number in found:
            yield Sample(catalogue.TAP_SAMPLES, number, labels)
        # A logger may leave errors out, as KServe's does: no failure is not none.
        yield from self._outcomes.samples(only_failed=True)

    def _refused(self, model: str) -> Outcome | None:
        self._refresh()
        if model not in self._known:
            return "unknown_model"
        wanted = self._wanted.get(model)
        if wanted is None:
            wanted = self._access.models.matches(model) and self._access.mirror.wanted(
                model
            )
            self._wanted[model] = wanted
        return None if wanted else "unwanted"

    def _refresh(self) -> None:
        current = self._access.board.current
        if current is not self._inventory:
            self._known = frozenset(name for name, _ in current.models)
            self._inventory = current
        now = self._access.clock()
        if now >= self._wanted_until:
            self._wanted = {}
            self._wanted_until = now + _WANTED_SECONDS


LEAST_CAPACITY: Final = 8.0
"""Minimum capacity of a bucket, which else holds the tokens of a second."""
MAX_BUCKETS: Final = 10_000


@dataclass(slots=True)
class _Bucket:
    rate: float
    tokens: float
    filled_at: float
    price: float = 1.0


class Sampler:
    """Token buckets by key. Thread-safe.

    A sample costs one token on average, exponentially distributed: with a fixed price
    the samples would keep step with traffic that repeats a pattern, and show a part of
    it only.

    Args:
        clock: monotonic seconds.
        rng: draws the prices.
    """

    def __init__(self, clock: Callable[[], float], rng: random.Random) -> None:
        self._clock = clock
        self._rng = rng
        self._lock = threading.Lock()
        self._buckets: dict[str, _Bucket] = {}

    def take(self, key: str, per_second: float) -> bool:
        """Return whether a sample of `key` may be taken now; count it if so."""
        now = self._clock()
        capacity = max(per_second, LEAST_CAPACITY)
        with self._lock:
            bucket = self._buckets.get(key)
            if bucket is None or bucket.rate != per_second:
                bucket = self._new(key, per_second, capacity, now)
            tokens = bucket.tokens + (now - bucket.filled_at) * per_second
            bucket.filled_at = now
            bucket.tokens = tokens = min(tokens, capacity)
            if tokens < bucket.price:
                return False
            bucket.tokens -= bucket.price
            # Tokens above the capacity would never be available.
            bucket.price = min(self._rng.expovariate(1.0), capacity)
            return True

    def _new(self, key: str, rate: float, capacity: float, now: float) -> _Bucket:
        if len(self._buckets) >= MAX_BUCKETS:
            self._buckets.clear()
        bucket = self._buckets[key] = _Bucket(rate, capacity, now)
        return bucket
