"""Models that get larger inputs because a response cache answered smaller ones."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from exporter.own_requests.payload import wider

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from exporter.access.inventory import ModelKey
    from exporter.access.probe_base import Verdict
    from exporter.own_requests.payload import InputSettings
    from exporter.triton.protocol_types import ModelSpec

_REFUSALS: Final = frozenset({"invalid", "model_error", "bad_output", "timeout"})
"""Outcomes that larger inputs may cause by themselves."""
_RETRY_SECONDS: Final = 3600.0


@dataclass(slots=True)
class _Known:
    spec: ModelSpec
    is_cached: bool = field(default=False)
    is_proven: bool = field(default=False)
    """The model answered larger inputs correctly; from then on a failure is its own."""
    refused_until: float = field(default=0.0)


class WiderInputs:
    """Decides by model how large the inputs are, and what a failure with larger ones means."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._models: dict[ModelKey, _Known] = {}

    def keep(self, keys: Collection[ModelKey]) -> None:
        """Forget every model that is not among `keys`."""
        with self._lock:
            for key in self._models.keys() - set(keys):
                del self._models[key]

    def inputs(
        self, spec: ModelSpec, overrides: Mapping[str, InputSettings]
    ) -> dict[str, InputSettings] | None:
        """Return settings of larger inputs for the next request, or None for the usual."""
        with self._lock:
            known = self._of(spec)
            is_due = known.is_cached and self._clock() >= known.refused_until
        return wider(spec, overrides) if is_due else None

    def judged(self, spec: ModelSpec, verdict: Verdict, *, is_wider: bool) -> Verdict:
        """Return the verdict on one request, and remember what it shows.

        A failure of larger inputs that the model has never answered shows nothing: it may
        not take them. They are left then, for an hour.
        """
        with self._lock:
            known = self._of(spec)
            if not is_wider:
                known.is_cached |= verdict.outcome == "cached"
            elif verdict.outcome == "ok":
                known.is_proven = True
            elif verdict.outcome in _REFUSALS and not known.is_proven:
                known.refused_until = self._clock() + _RETRY_SECONDS
                detail = (
                    "unproven: a response cache answered, and larger inputs, which it "
                    f"does not know, failed: {verdict.detail}; give the probe more input "
                    "values with `overrides`"
                )
                return replace(
                    verdict, outcome="cached", duration_seconds=None, detail=detail
                )
        return verdict

    def _of(self, spec: ModelSpec) -> _Known:
        key = spec.key
        known = self._models.get(key)
        if known is None or known.spec != spec:
            known = self._models[key] = _Known(spec)
        return known
