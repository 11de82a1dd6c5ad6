"""One side of one model: its reference, whether that fits, and its watch."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, Literal

import structlog

from drift.errors import DriftError, ProfileError, StateError
from drift.features import RESERVED
from drift.fitting import ProfileBuilder
from drift.reference import Profile, Provenance
from exporter.features.drift.drift_outlook import Outlooks
from exporter.features.drift.drift_rows import Rows
from exporter.features.drift.drift_state import Store, read_whole
from exporter.features.drift.drift_tensors import declared, require, schema_of
from exporter.features.drift.drift_watch import Watch, hour_of_week
from exporter.system import whole_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from drift.features import Schema
    from exporter.features.drift.drift_settings import DriftLearnSettings, DriftSettings
    from exporter.features.drift.drift_tensors import Declared
    from exporter.triton.protocol_types import ModelSpec

    Tensors = Mapping[str, NDArray[np.generic[Any]]]

log = structlog.get_logger()

State = Literal["waiting", "learning", "watching", "refused"]

_PROFILE: Final = "profile"
_STATE: Final = "state"
_OUTLOOK: Final = "outlook"
_JOINT_OUTPUTS: Final = f"{RESERVED} outputs)"
# Limit of raw rows kept until the cells are chosen: 16 MB.
_SAMPLE_VALUES: Final = 2_000_000
_SAMPLE_ROWS: Final = (500, 20_000)
# A large state takes long to write: never more than this share of the time.
_SAVING_SHARE: Final = 0.05


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
        self._columns = {tensor.name for tensor in schema.tensors}
        self._began = clock()

    def add(self, request: Tensors) -> None:
        """Learn from one request, if it is as declared."""
        # What does not fit is not learnt; the window counts it as a violation.
        lengths = {t.shape[:1] for name, t in request.items() if name in self._columns}
        if len(lengths) != 1 or not self._columns <= request.keys():
            return
        ((rows,),) = lengths
        with self._lock:
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


class Subject:
    """One entry of `drift:`, applied to one model."""

    def __init__(
        self,
        settings: DriftSettings,
        model: str,
        *,
        clock: Callable[[], float],
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self.model = model
        self.state: State = "waiting"
        self.problems: tuple[str, ...] = ()
        self.watch: Watch | None = None
        self.learner: Learner | None = None
        self.outlooks = Outlooks(settings.forecast, clock)
        self.saved_at: float | None = None
        self._clock = clock
        self._wall_clock = wall_clock
        self._store = Store(settings.state, model, settings.side)
        self._seen: object = None
        self._tensors: dict[str, Declared] = {}
        self._rows: Rows | None = None
        self._alarm = False
        self._save_due = clock() + settings.state_seconds

    @property
    def wanted(self) -> bool:
        """Return whether requests are watched."""
        return self._rows is not None

    def add(self, request: Tensors) -> None:
        """Count one request's tensors of this side; called in the taps' threads."""
        rows, reader = self._rows, self.watch or self.learner
        if rows is not None and reader is not None:
            reader.add(rows.of(request))

    def consider(self, spec: ModelSpec, used: set[str]) -> None:
        """Check the model and the reference's file again.

        `used` are names of features that another side of the model has already.
        """
        reference = self.settings.reference
        stamp = None if reference is None else whole_file.stamp(reference)
        seen = (spec, stamp, frozenset(used))
        if seen == self._seen:
            return
        self._seen = seen
        self._tensors = declared(spec, self.settings.side)
        try:
            self._begin(used)
        except DriftError as error:
            self._refuse(error)
        except OSError as error:
            self._unread(error)

    def _unread(self, error: OSError) -> None:
        """Handle a file that may be valid but cannot be read: try again the next time."""
        self._seen = None
        self._refuse(error)

    def _begin(self, used: set[str]) -> None:
        profile = self._profile()
        schema = profile.schema if profile else self._wanted_schema()
        require(schema, self._tensors)
        doubled = sorted(used & set(schema.names))
        if doubled:
            raise ProfileError(
                [
                    f"feature {name!r} is among both the inputs and the outputs of "
                    "the model"
                    for name in doubled
                ]
            )
        if profile is None:
            self._learn(schema)
        elif self.watch is None or self.watch.profile is not profile:
            self._watch(profile)
        self._rows = Rows(schema, self._tensors)
        self.problems = ()

    def _wanted_schema(self) -> Schema:
        return schema_of(self._tensors, self.settings.features, self.settings.text)

    def _profile(self) -> Profile | None:
        """The reference there is: of the file, or learnt before; the same if unchanged."""
        path = self.settings.reference
        if path is not None:
            return self._unless_known(read_whole(path))
        data = self._store.read(_PROFILE)
        if data is None:
            learnt = self.watch and self.watch.profile
            if learnt and not learnt.schema.differences(self._wanted_schema()):
                return learnt
            return None
        wanted = self._wanted_schema()
        try:
            profile = self._unless_known(data)
            profile.require(wanted)
        except DriftError as error:
            self._store.set_aside(_PROFILE, str(error))
            return None
        return profile

    def _unless_known(self, data: bytes) -> Profile:
        profile = self._named(Profile.from_bytes(data))
        known = None if self.watch is None else self.watch.profile
        if known is not None and known.fingerprint == profile.fingerprint:
            return known
        return profile

    def _named(self, profile: Profile) -> Profile:
        """The profile, with names that the model's other side does not have."""
        if self.settings.side == "inputs":
            return profile
        return replace(profile, joint_name=_JOINT_OUTPUTS)

    def _learn(self, schema: Schema) -> None:
        if self.learner is None or self.learner.schema != schema:
            if self.settings.learn is None:
                raise ProfileError(["found neither a reference nor `learn`"])
            self.learner = Learner(
                schema, self.settings.learn, self._clock, self._wall_clock
            )
        self.watch = None
        self.state = "learning"

    def _watch(self, profile: Profile) -> None:
        watch = self._fresh(profile)
        saved = self._store.read(_STATE)
        if saved is not None:
            try:
                watch.restore(saved)
            except StateError as error:
                self._store.set_aside(_STATE, str(error))
                watch = self._fresh(profile)
        self._recall_outlook()
        self.watch, self.learner = watch, None
        self.state = "watching"
        self._alarm = watch.statistics.alarm_since is not None
        self._log(
            "info",
            "drift_watching",
            features=len(profile.schema.features),
            reference_rows=profile.rows,
            restored=watch.result is not None,
        )
        for event, reasons in (
            ("drift_promise_not_kept", profile.caveats),
            ("drift_not_seen", profile.blind_spots),
        ):
            if reasons:
                self._log("warning", event, reason="; ".join(reasons))

    def _fresh(self, profile: Profile) -> Watch:
        return Watch(
            profile, self.settings, clock=self._clock, wall_clock=self._wall_clock
        )

    def _recall_outlook(self) -> None:
        saved = self._store.read(_OUTLOOK) if self.settings.forecast else None
        if saved is not None:
            try:
                self.outlooks.restore(saved)
            except StateError as error:
                self._store.set_aside(_OUTLOOK, str(error))

    def _refuse(self, error: DriftError | OSError) -> None:
        problems = tuple(getattr(error, "differences", (str(error),)))
        is_repeated = isinstance(error, OSError) and self.problems == problems
        self.problems = problems
        kept = self._still_fits()
        self._log(
            "debug" if is_repeated else "error",
            "drift_reference_refused",
            reference=str(self.settings.reference or "learnt"),
            differences="; ".join(problems),
            keeps_old_reference=kept,
        )
        if not kept:
            self.state, self._rows = "refused", None
            self.watch = self.learner = None

    def _still_fits(self) -> bool:
        """Return whether the current watch can continue although its successor is refused."""
        if self.watch is None:
            return False
        try:
            require(self.watch.profile.schema, self._tensors)
        except ProfileError:
            return False
        return True

    def step(self, accuracy: float | None) -> None:
        """Evaluate windows and save the state, if due.

        `accuracy` is the model's estimated one.
        """
        if self.learner is not None and self.learner.done:
            self._learnt(self.learner)
        if self.watch is None:
            return
        if self.watch.step():
            self._log_alarm(self.watch)
        self.outlooks.add(self.watch.result, accuracy)
        if self._clock() >= self._save_due:
            self.save()

    def _learnt(self, learner: Learner) -> None:
        profile = self._named(learner.profile(self.model))
        self._store.write(_PROFILE, profile.to_bytes())
        self._log("info", "drift_reference_learnt", rows=profile.rows)
        try:
            self._watch(profile)
        except OSError as error:
            self._unread(error)

    def _log_alarm(self, watch: Watch) -> None:
        result, since = watch.result, watch.statistics.alarm_since
        alarm = since is not None
        if result is not None and alarm and not self._alarm:
            self._log(
                "warning",
                "drift_alarm",
                features=", ".join(c.feature for c in result.verdict.culprits),
                correlations=", ".join(
                    str(pair) for c in result.verdict.culprits for pair in c.pairs
                ),
                since_seconds=round(result.closed_at - (since or 0.0), 1),
            )
        elif self._alarm and not alarm:
            self._log("info", "drift_alarm_over")
        self._alarm = alarm

    def _log(self, level: str, event: str, **fields: object) -> None:
        side = self.settings.side
        getattr(log, level)(event, model=self.model, side=side, **fields)

    def close(self) -> None:
        """Write the state; a reference that is still being learnt is lost."""
        self.save()
        if self.learner is not None and self.learner.rows:
            self._log("warning", "drift_learning_lost", rows=self.learner.rows)

    def save(self) -> None:
        """Write the state, now."""
        if self.watch is None or not self._store.kept:
            return
        began = self._clock()
        if self._store.write(_STATE, *self.watch.state()):
            self.saved_at = self._wall_clock()
        if self.settings.forecast is not None:
            self._store.write(_OUTLOOK, self.outlooks.state())
        now = self._clock()
        pause = max(self.settings.state_seconds, (now - began) / _SAVING_SHARE)
        self._save_due = now + pause
