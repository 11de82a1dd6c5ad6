"""The golden probe: sends golden data, scores the answers, and keeps the latest round."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import structlog

from exporter import catalogue
from exporter.access.probe_base import Target, Verdict
from exporter.errors import GoldenDataError
from exporter.features.golden import golden_data
from exporter.features.golden.golden_budget import Watched
from exporter.features.golden.golden_state import ModelState
from exporter.own_requests.sending import speaks_http
from exporter.samples import Sample
from exporter.system import whole_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from exporter.access.collector_base import Access
    from exporter.access.inventory import Inventory, ModelKey
    from exporter.features.golden.golden_data import GoldenSet
    from exporter.features.golden.golden_settings import GoldenData, GoldenSettings
    from exporter.samples import AnySample
    from exporter.triton.protocol_types import ModelSpec

log = structlog.get_logger()

_CHECK_FILE_SECONDS: Final = 10.0


class GoldenProbe:
    """Sends the golden set to each model, a few samples at a time, within the budget."""

    def __init__(self, settings: GoldenSettings, access: Access) -> None:
        self.settings = settings
        self._access = access
        self._lock = threading.Lock()
        # Of the file and what was read of it: a scrape does not wait for a disk.
        self._reading = threading.Lock()
        self._states: dict[ModelKey, ModelState] = {}
        self.watched: dict[ModelKey, Watched] = {}
        """Of versions that are gone as well: they may come back."""
        self._found: GoldenSet | GoldenDataError | None = None
        self._stamp: tuple[int, int, int] | None = None
        self._checked_at = -_CHECK_FILE_SECONDS
        self._problems: dict[ModelKey, str] = {}
        self._calibrated: set[ModelKey] = set()
        """Models whose calibrations are of a probe that this one follows."""
        self._is_followed = False

    def inherit(self, predecessor: object) -> None:
        """Keep baselines, alarms and calibrations if the golden data are the same."""
        if not isinstance(predecessor, GoldenProbe):
            return
        if predecessor.settings.data == self.settings.data:
            with predecessor._lock:  # noqa: SLF001 - of the same class
                predecessor._is_followed = True  # noqa: SLF001
                self._calibrated = set(predecessor._states) | predecessor._calibrated  # noqa: SLF001
            # A copy: the predecessor may still be in its last attempt.
            self.watched = {
                key: replace(watched, level=0)
                for key, watched in predecessor.watched.copy().items()
            }

    def targets(self, inventory: Inventory) -> Sequence[Target]:
        """Every ready model of the filter, by the one protocol."""
        chosen = [
            (key, spec)
            for key, spec in inventory.models.items()
            if self.settings.models.matches(spec.name)
        ]
        with self._lock:
            held = {*self._states, *self._problems, *self._calibrated}
            for gone in held - {key for key, _ in chosen}:
                self._forget(gone)
            for key, state in self._states.items():
                if not state.is_fresh:
                    self._access.calibration.suspend(key, self.settings.dataset)
            for key, _ in chosen:
                if key not in self.watched:
                    self.watched[key] = self._before(key[0])
        http = self.settings.protocol == "http" and self._access.http is not None
        return [
            Target(
                key,
                "http"
                if http and speaks_http(spec, {})
                else self._access.server.protocol,
            )
            for key, spec in chosen
        ]

    def _before(self, model: str) -> Watched:
        """Return the baseline for a version that comes now: that of the latest before it."""
        found = Watched()
        for (name, _), watched in self.watched.items():
            if name == model and watched.baseline is not None:
                found = replace(watched, level=0, alarm=False)
        return found

    def attempt(self, target: Target) -> Verdict | None:
        """Send the next few samples; None where the budget is used up."""
        spec = self._access.board.current.models.get(target.key)
        if spec is None:
            return Verdict(
                "invalid", detail="the model is not in the inventory any more"
            )
        try:
            state = self._state(target, spec)
        except GoldenDataError as error:
            self._refuse(target.key, error)
            return Verdict("configuration", detail=str(error))
        with self._lock:
            self._problems.pop(target.key, None)
        verdict = state.attempt()
        with self._lock:
            if not self._is_followed and self._states.get(target.key) is not state:
                # It ended during the attempt.
                self._access.calibration.forget(target.key, self.settings.dataset)
        return verdict

    def close(self) -> None:
        """Take back the calibrations, unless another probe continues with them."""
        with self._lock:
            for key in {*self._states, *self._problems, *self._calibrated}:
                if not self._is_followed:
                    self._forget(key)

    def _forget(self, key: ModelKey) -> None:
        self._states.pop(key, None)
        self._problems.pop(key, None)
        self._calibrated.discard(key)
        self._access.calibration.forget(key, self.settings.dataset)

    def samples(self) -> list[AnySample]:
        """Return the samples of all models; reads memory only."""
        with self._lock:
            states, unusable = list(self._states.values()), list(self._problems)
        found = [sample for state in states for sample in state.samples()]
        dataset = self.settings.dataset
        return found + [
            Sample(catalogue.GOLDEN_USABLE, 0, (*key, dataset)) for key in unusable
        ]

    def _state(self, target: Target, spec: ModelSpec) -> ModelState:
        golden = self._golden()
        with self._lock:
            state = self._states.get(target.key)
            # /probe?target= attempts without asking for targets.
            watched = self.watched.get(target.key) or self._before(target.key[0])
        if state is not None and state.fits(spec, golden):
            return state
        if watched.sha256 != golden.sha256:
            watched = Watched(golden.sha256)
        rng = np.random.default_rng(self.settings.seed)
        made = ModelState(
            self.settings, self._access, spec, target, golden, watched, rng
        )
        with self._lock:
            self._states[target.key], self.watched[target.key] = made, watched
        return made

    def _golden(self) -> GoldenSet:
        """The set as the file has it now; read again when the file changed."""
        wanted = self.settings.data
        with self._reading:
            now = self._access.clock()
            if now - self._checked_at >= _CHECK_FILE_SECONDS:
                self._checked_at = now
                found = whole_file.stamp(wanted.file)
                if found != self._stamp or found is None:
                    self._found, self._stamp = _read(wanted), found
            if self._found is None:
                self._found = _read(wanted)
            if isinstance(self._found, GoldenDataError):
                raise self._found
            return self._found

    def _refuse(self, key: ModelKey, error: GoldenDataError) -> None:
        """Log the error once; the model then has no golden samples."""
        with self._lock:
            self._states.pop(key, None)
            before, self._problems[key] = self._problems.get(key), str(error)
            self._access.calibration.suspend(key, self.settings.dataset)
        if before != str(error):
            log.error(
                "golden_data_unusable",
                model=key[0],
                version=key[1],
                file=error.file,
                row=error.row,
                field=error.field,
                reason=str(error),
            )


def _read(wanted: GoldenData) -> GoldenSet | GoldenDataError:
    """Return the set, or why it cannot be used; never what the file held before."""
    try:
        return golden_data.read(wanted)
    except GoldenDataError as error:
        return error
