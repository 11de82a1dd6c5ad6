"""Passes mirrored production requests from taps to their subscribers.

A tap publishes what it parsed; drift windows, outputs and shadow comparisons
subscribe. A tap calls `wanted` before it parses anything, so that a request without a
subscriber costs next to nothing.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    Tensors = Mapping[str, NDArray[np.generic[Any]]]
    Receiver = Callable[[Sequence["Mirrored"]], None]

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Mirrored:
    """A production request or its answer, as a tap saw it.

    Tensors are by name and have the shape they were sent in, the batch dimension
    included; BYTES are object arrays of `bytes`. They are to be read only.
    """

    source: str
    """The tap: "http", "grpc", "openai" or "cloudevents"."""
    model: str
    version: str
    """"" where the request left it to the server."""
    request_id: str
    inputs: Tensors = field(default_factory=dict)
    outputs: Tensors = field(default_factory=dict)
    parameters: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    as_sent: bool = True
    """False for texts from OpenAI's bodies: the client did not send these tensors."""


class Subscription:
    """A reader's place at the hub; ends with `close`."""

    def __init__(
        self, hub: MirrorHub, models: Callable[[str], bool], receive: Receiver
    ) -> None:
        self.models = models
        self.receive = receive
        self.turn = threading.Lock()
        self._hub = hub

    def close(self) -> None:
        """End the subscription."""
        self._hub.leave(self)


class MirrorHub:
    """Passes each mirrored request to all subscribers of its model. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._subscriptions: tuple[Subscription, ...] = ()

    def subscribe(
        self, models: Callable[[str], bool], receive: Receiver
    ) -> Subscription:
        """Call `receive` with every batch of requests to models that `models` accepts.

        `receive` is called in the taps' threads, never in two at once: it is to be quick, keep nothing unbounded
        and raise nothing; what it raises is logged and costs the others nothing.
        """
        subscription = Subscription(self, models, receive)
        with self._lock:
            self._subscriptions = (*self._subscriptions, subscription)
        return subscription

    def leave(self, subscription: Subscription) -> None:
        """The opposite of `subscribe`; may be called twice."""
        with self._lock:
            self._subscriptions = tuple(
                s for s in self._subscriptions if s is not subscription
            )

    def wanted(self, model: str) -> bool:
        """Return whether this model has a subscriber."""
        return any(s.models(model) for s in self._subscriptions)

    def publish(self, requests: Sequence[Mirrored]) -> None:
        """Pass requests to the subscribers, in the order received."""
        for subscription in self._subscriptions:
            batch = [r for r in requests if subscription.models(r.model)]
            if not batch:
                continue
            try:
                with subscription.turn:
                    subscription.receive(batch)
            except Exception:
                log.exception("mirror_reader_failed", requests=len(batch))
