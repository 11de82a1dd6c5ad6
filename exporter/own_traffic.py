"""Our own requests, counted so that they can be taken out of production's numbers."""

from __future__ import annotations

import contextlib
import itertools
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from exporter import errors

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from exporter.inventory import ModelKey

REQUEST_ID_PREFIX: Final = "tritonwatch-"
"""Every request of ours carries an id that begins so; traces and taps know it by that."""


@dataclass(frozen=True, slots=True)
class OwnCounts:
    """Own requests to one model version since the start of this process.

    `failed` holds only failures that Triton counts too: those inside the model.
    `unresolved` never got an answer, so nobody can say whether Triton counted them.
    """

    ok: int = 0
    failed: int = 0
    unresolved: int = 0
    in_flight: int = 0


class OwnTraffic:
    """The ledger of own requests. Thread-safe."""

    def __init__(self, *, run_id: str) -> None:
        self._lock = threading.Lock()
        self._counts: dict[ModelKey, OwnCounts] = {}
        self._numbers = itertools.count(1)
        self._run_id = run_id

    def new_request_id(self, purpose: str) -> str:
        """An id never used before, recognisable as ours."""
        return f"{REQUEST_ID_PREFIX}{purpose}-{self._run_id}-{next(self._numbers)}"

    def counts(self, key: ModelKey) -> OwnCounts:
        """What was asked of one model version so far."""
        with self._lock:
            return self._counts.get(key, OwnCounts())

    def snapshot(self) -> dict[ModelKey, OwnCounts]:
        """All counts at one instant."""
        with self._lock:
            return dict(self._counts)

    @contextlib.contextmanager
    def request(self, keys: Iterable[ModelKey]) -> Generator[None]:
        """Account for one own request that touches `keys`: an ensemble and its steps.

        What the body raises decides where it counts; errors pass through.
        """
        touched = tuple(keys)
        self._add(touched, in_flight=1)
        try:
            yield
        except errors.ModelError:
            # Triton books the failure where it happened; for an ensemble that is the
            # ensemble itself and one of its steps, unknown which.
            self._add(touched[:1], failed=1)
            raise
        except (errors.DeadlineError, errors.ProtocolError):
            self._add(touched, unresolved=1)
            raise
        except (errors.InvalidRequestError, errors.UnavailableError):
            # Refused before it reached a scheduler: in no statistic.
            raise
        else:
            self._add(touched, ok=1)
        finally:
            self._add(touched, in_flight=-1)

    def _add(
        self,
        keys: tuple[ModelKey, ...],
        *,
        ok: int = 0,
        failed: int = 0,
        unresolved: int = 0,
        in_flight: int = 0,
    ) -> None:
        with self._lock:
            for key in keys:
                counts = self._counts.get(key, OwnCounts())
                self._counts[key] = replace(
                    counts,
                    ok=counts.ok + ok,
                    failed=counts.failed + failed,
                    unresolved=counts.unresolved + unresolved,
                    in_flight=counts.in_flight + in_flight,
                )
