"""The requests of a run, made before it: bodies in weighted entries, and when they are sent.

The send time of each request is computed before the run and divided among senders.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from loadtests.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from exporter.triton.protocol_types import Array, ModelSpec
    from loadtests.result import Floats

MAX_REQUESTS: Final = 5_000_000
"""Limit of one run's requests: their record is then below 200 MB."""
MAX_SECONDS: Final = 7 * 24 * 3600.0
_SHOWN: Final = 5
# Streams of random numbers of one seed that must not be each other's.
_SHARES, _MIX = 1, 2
Style = Literal["unary", "generate", "stream"]
"""`generate` sends Triton's /generate, whose answer is one JSON object."""
MAX_ENTRIES: Final = 100


def checked(arrivals: ArrayLike) -> Floats:
    """Return the arrivals as an array, checked.

    Seconds from the start of the run, in order, at most `MAX_REQUESTS` of them.

    Raises:
        PlanError: they are not.
    """
    times = np.ascontiguousarray(arrivals, np.float64)
    if times.ndim != 1 or not times.size:
        raise PlanError("found no arrivals; a run needs at least one request")
    if times.size > MAX_REQUESTS:
        raise PlanError(
            f"found {times.size} arrivals; a run has at most {MAX_REQUESTS}: make it "
            "shorter or slower, or distribute it over workers"
        )
    if not np.isfinite(times).all() or times[0] < 0 or times[-1] > MAX_SECONDS:
        raise PlanError(
            f"found arrivals from {times[0]:g} s to {times[-1]:g} s; "
            f"want finite times from 0 to {MAX_SECONDS:g} s"
        )
    backwards = np.flatnonzero(np.diff(times) < 0)
    if backwards.size:
        raise PlanError(
            f"found arrivals that go backwards after number {backwards[:_SHOWN].tolist()}; "
            "want them in order"
        )
    return times


def share(
    arrivals: Floats, worker: int, workers: int, *, seed: int
) -> NDArray[np.int64]:
    """Return the indices of one worker's arrivals.

    Each arrival goes to a worker drawn evenly and independently, the same draw for the
    same seed wherever it is made. A Poisson process split so gives independent Poisson
    processes of 1 / workers of the rate each, and all workers together send exactly the
    schedule of one (Kingman, Poisson Processes, 1993, colouring theorem).
    """
    if not 0 <= worker < workers:
        raise PlanError(
            f"found worker {worker} of {workers}; workers are numbered from 0"
        )
    rng = np.random.default_rng((seed, _SHARES))
    owners = rng.integers(0, workers, size=arrivals.size)
    return np.flatnonzero(owners == worker)


def entries(count: int, weights: ArrayLike, *, seed: int) -> NDArray[np.uint8]:
    """Return the entry of the mix of each request, drawn by weight."""
    shares = np.asarray(weights, np.float64)
    if shares.size == 1:
        return np.zeros(count, np.uint8)
    rng = np.random.default_rng((seed, _MIX))
    drawn = rng.choice(shares.size, size=count, p=shares / shares.sum())
    return drawn.astype(np.uint8)


@dataclass(frozen=True, slots=True)
class Body:
    """One request, ready for the wire.

    For gRPC the serialised ModelInferRequest; for HTTP the JSON and then the tensors'
    binary content, `header_bytes` of it being JSON that ends in "}}": all of it, where
    tensors are JSON.
    """

    data: bytes
    header_bytes: int = 0
    rows: int = 1
    """Size of the batch dimension, where the model has one."""
    expected: Mapping[str, Array] = field(default_factory=dict)
    """The correct answer by output, where it is known."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Requests to one model version, sent in turns."""

    name: str
    spec: ModelSpec
    bodies: tuple[Body, ...]
    weight: float = 1.0
    style: Style = "unary"
    sequence_length: int = 1
    """Requests of one sequence; of a sequence model."""
    tolerance: float = 0.0
    """Largest difference of a value from `Body.expected`, relative and absolute alike; of
    integers absolute only."""

    @property
    def version(self) -> str:
        """The requested version, "" for the server's choice."""
        return self.spec.version


@dataclass(frozen=True, slots=True)
class Mix:
    """The entries of a run, drawn by weight."""

    entries: tuple[Entry, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.entries) <= MAX_ENTRIES:
            raise PlanError(
                f"found {len(self.entries)} models; want 1 to {MAX_ENTRIES}"
            )

    @property
    def weights(self) -> Sequence[float]:
        """Weights in the order of the entries."""
        return [entry.weight for entry in self.entries]

    def begun_at(self, share: float) -> Mix:
        """Return it with the bodies of each entry in turns that begin at this share of them.

        Several senders then do not all send the first ones.
        """
        return Mix(tuple(map(partial(_begun_at, share), self.entries)))

    @property
    def sha256(self) -> str:
        """SHA-256 of every body, in order: equal for two runs that send the same bytes."""
        digest = hashlib.sha256()
        for entry in self.entries:
            for body in entry.bodies:
                digest.update(len(body.data).to_bytes(8, "little"))
                digest.update(body.data)
        return digest.hexdigest()


def _begun_at(share: float, entry: Entry) -> Entry:
    first = int(share * len(entry.bodies))
    return replace(entry, bodies=entry.bodies[first:] + entry.bodies[:first])
