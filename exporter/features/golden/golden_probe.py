"""The golden probe: sends golden data, scores the answers, and keeps the latest round."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

import numpy as np
import structlog

from exporter import catalogue
from exporter.access.probe_base import Target, Transport, Verdict
from exporter.errors import GoldenDataError
from exporter.features.golden import golden_data
from exporter.features.golden.golden_history import GoldenHistory
from exporter.features.golden.golden_state import ModelState
from exporter.own_requests.sending import speaks_http
from exporter.samples import Sample
from exporter.system import whole_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from exporter.access.collector_base import Access
    from exporter.access.inventory import Inventory, ModelKey
    from exporter.features.golden.golden_data import GoldenSet
    from exporter.features.golden.golden_settings import GoldenSettings
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
        self._problems: dict[ModelKey, str] = {}
        self.history = GoldenHistory(access.calibration, settings.dataset)
        self._found: GoldenSet | GoldenDataError = GoldenDataError("", "not read yet")
        self._stamp: tuple[int, int, int] | None = None
        self._checked_at = -_CHECK_FILE_SECONDS

    def inherit(self, predecessor: object) -> None:
        """Keep baselines, alarms and calibrations if the golden data are the same."""
        if isinstance(predecessor, GoldenProbe) and (
            predecessor.settings.data == self.settings.data
        ):
            self.history = predecessor.history.hand_over()

    def targets(self, inventory: Inventory) -> Sequence[Target]:
        """Every ready model of the filter, by the one protocol."""
        chosen = [
            (key, spec)
            for key, spec in inventory.models.items()
            if self.settings.models.matches(spec.name)
        ]
        keys = {key for key, _ in chosen}
        self.history.present(keys)
        with self._lock:
            for held in (self._states, self._problems):
                for gone in held.keys() - keys:
                    del held[gone]
            for key, state in self._states.items():
                if not state.is_fresh:
                    self.history.board.suspend(key, self.settings.dataset)
        http = self.settings.protocol == "http" and self._access.http is not None
        main: Transport = self._access.server.protocol
        return [
            Target(key, "http" if http and speaks_http(spec, {}) else main)
            for key, spec in chosen
        ]

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
        return state.attempt()

    def close(self) -> None:
        """Take the calibrations back, unless another probe has them."""
        self.history.close()
        with self._lock:
            self._states.clear()
            self._problems.clear()

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
        if state is not None and state.fits(spec, golden):
            return state
        rng = np.random.default_rng(self.settings.seed)
        made = ModelState(
            self.settings, self._access, spec, target, golden, self.history, rng
        )
        with self._lock:
            self._states[target.key] = made
        return made

    def _golden(self) -> GoldenSet:
        """The set as the file has it now; read again when the file changed."""
        wanted = self.settings.data
        with self._reading:
            now = self._access.clock()
            if now - self._checked_at >= _CHECK_FILE_SECONDS:
                self._checked_at = now
                stamp = whole_file.stamp(wanted.file)
                if stamp != self._stamp or stamp is None:
                    self._stamp = stamp
                    try:
                        self._found = golden_data.read(wanted)
                    except GoldenDataError as error:
                        self._found = error
            if isinstance(self._found, GoldenDataError):
                raise self._found
            return self._found

    def _refuse(self, key: ModelKey, error: GoldenDataError) -> None:
        """Log the error once; the model then has no golden samples."""
        with self._lock:
            self._states.pop(key, None)
            before, self._problems[key] = self._problems.get(key), str(error)
            self.history.board.suspend(key, self.settings.dataset)
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
