"""A reference made of live traffic."""

from __future__ import annotations

import threading
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from drift.fitting import ProfileBuilder
from drift.reference import Profile, Provenance
from drift.season import hour_of_week

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from drift.features import Schema
    from exporter.features.drift.drift_settings import DriftLearnSettings

    Tensors = Mapping[str, NDArray[np.generic[Any]]]

# Limit of raw rows kept until the cells are chosen: 16 MB.
_SAMPLE_VALUES: Final = 2_000_000
_SAMPLE_ROWS: Final = (500, 20_000)


class Learner:
    """Makes a reference of live traffic. `add` is thread-safe."""

    def __init__(
        self,
        schema: Schema,
        settings: DriftLearnSettings,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
    ) -> None:
        self.schema = schema
        self.rows = 0
        self._settings = settings
        self._clock = clock
        self._wall_clock = wall_clock
        self._lock = threading.Lock()
        least, most = _SAMPLE_ROWS
        fitting = _SAMPLE_VALUES // len(schema.features)
        self._builder = ProfileBuilder(
            schema, sample_rows=min(max(fitting, least), most)
        )
        self._began = clock()

    def add(self, request: Tensors) -> None:
        """Learn from one request, if it is as declared."""
        with self._lock:
            # What does not fit is not learnt; the window counts it as a violation.
            rows = self._builder.rows_of(request)
            if not rows:
                return
            self._builder.add(request, hour=hour_of_week(self._wall_clock()))
            self.rows += rows

    @property
    def done(self) -> bool:
        """Return whether enough came for long enough."""
        age = self._clock() - self._began
        return self.rows >= self._settings.rows and age >= self._settings.seconds

    def profile(self, model: str) -> Profile:
        """The reference of all that came."""
        versions = {name: version(name) for name in ("tritonwatch", "numpy")}
        with self._lock:
            return self._builder.build(
                Provenance(f"live traffic of {model}", versions=versions)
            )
