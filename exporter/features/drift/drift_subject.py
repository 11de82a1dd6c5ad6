"""One side of one model: its reference, whether that fits, and its watch."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal

import structlog

from drift.errors import DriftError, ProfileError, StateError
from drift.features import RESERVED
from drift.reference import Profile
from exporter.features.drift.drift_learner import Learner
from exporter.features.drift.drift_outlook import Outlooks
from exporter.features.drift.drift_rows import Rows
from exporter.features.drift.drift_state import FORMER, PROFILE, Store, read_whole
from exporter.features.drift.drift_tensors import declared, require, schema_of
from exporter.features.drift.drift_watch import Watch
from exporter.system import whole_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from drift.features import Schema
    from exporter.features.drift.drift_embedding import EmbeddedTexts
    from exporter.features.drift.drift_settings import DriftSettings
    from exporter.features.drift.drift_tensors import Declared
    from exporter.triton.protocol_types import ModelSpec

    Tensors = Mapping[str, NDArray[np.generic[Any]]]

log = structlog.get_logger()

State = Literal["waiting", "learning", "watching", "refused"]

_STATE: Final = "state"
_OUTLOOK: Final = "outlook"
# A large state takes long to write: never more than this share of the time.
_SAVING_SHARE: Final = 0.05


class Subject:
    """One entry of `drift:`, applied to one model."""

    def __init__(
        self,
        settings: DriftSettings,
        model: str,
        *,
        clock: Callable[[], float],
        wall_clock: Callable[[], float] = time.time,
        embedded: EmbeddedTexts | None = None,
    ) -> None:
        self.settings = settings
        self.model = model
        self.state: State = "waiting"
        self.problems: tuple[str, ...] = ()
        self.watch: Watch | None = None
        self.learner: Learner | None = None
        self.outlooks = Outlooks(settings.forecast, clock)
        self.saved_at: float | None = None
        self.save_by: float | None = None
        """Wall time by which the state should be written again; None if it is not kept."""
        self._clock, self._wall_clock = clock, wall_clock
        self.embedded = embedded
        self._store = Store(settings.state, model, settings.watched)
        self._seen: object = None
        self._versions: dict[str, dict[str, Declared]] = {}
        self._unwatched: frozenset[str] = frozenset()
        self._used: frozenset[str] = frozenset()
        self._former: Watch | None = None
        self._rows: Rows | None = None
        self._alarm = False
        self._save_due = clock() + settings.state_seconds

    @property
    def wanted(self) -> bool:
        """Return whether requests are watched."""
        return self._rows is not None

    def add(self, request: Tensors, version: str) -> None:
        """Count one request's tensors of this side; called in the taps' threads.

        `version` of the model is "" where the request leaves it to the server.
        """
        rows, reader = self._rows, self.watch or self.learner
        if version in self._unwatched or rows is None or reader is None:
            return
        reader.add(rows.of(request))

    def consider(self, specs: Sequence[ModelSpec], used: set[str]) -> None:
        """Check the model's versions, the latest first, and the reference's file again.

        `used` are names of features that another side of the model has already.
        """
        reference = self.settings.reference
        stamp = None if reference is None else whole_file.stamp(reference)
        embedder = self.embedded and self.embedded.embedder()
        seen = (*specs, stamp, frozenset(used), embedder)
        if seen == self._seen:
            return
        self._seen, self._used = seen, frozenset(used)
        try:
            self._versions = {spec.version: self._declared(spec) for spec in specs}
            self._begin()
        except DriftError as error:
            self._refuse(error)
        except OSError as error:
            self._unread(error)

    def _declared(self, spec: ModelSpec) -> dict[str, Declared]:
        found = declared(spec, self.settings.side)
        return found if self.embedded is None else self.embedded.declared(found)

    def _unread(self, error: OSError) -> None:
        """Handle a file that may be valid but cannot be read: try again the next time."""
        self._seen = None
        self._refuse(error)

    def _begin(self) -> None:
        profile = self._profile()
        schema = profile.schema if profile else self._schema_to_learn()
        rows, problems = self._counted(schema)
        if profile is None:
            self._learn(schema)
        elif self.watch is None or self.watch.profile is not profile:
            if self.embedded is not None:
                self.embedded.recall(profile)
            self._watch(profile)
            self._stop_learning()
        self._rows, self.problems = rows, problems
        if problems:
            reason = "; ".join(problems)
            self._log("warning", "drift_versions_not_watched", reason=reason)

    def _counted(self, schema: Schema) -> tuple[Rows, tuple[str, ...]]:
        """Return how rows are counted, and why those of some versions are not.

        Raises:
            ProfileError: no version has these tensors; it lists the differences of the
                latest. Or the other side has features of the same names.
        """
        if doubled := sorted(self._used & set(schema.names)):
            both = "is among both the inputs and the outputs of the model"
            raise ProfileError([f"feature {name!r} {both}" for name in doubled])
        refused: dict[str, ProfileError] = {}
        for version, tensors in self._versions.items():
            try:
                require(schema, tensors)
            except ProfileError as error:
                refused[version] = error
        latest = next(iter(self._versions))
        fitting = [each for each in self._versions if each not in refused]
        if not fitting:
            raise refused[latest]
        # A request without a version is answered by the latest.
        self._unwatched = frozenset((*refused, *([""] if latest in refused else [])))
        return Rows(schema, self._versions[fitting[0]]), tuple(
            f"version {version} is not watched: {'; '.join(error.differences)}"
            for version, error in refused.items()
        )

    def _wanted_schemas(self) -> list[Schema]:
        """Return what would be learnt of each version, the latest first.

        Raises:
            DriftError: nothing can be learnt of any; it is the problem of the latest.
        """
        found, problems = [], []
        for tensors in self._versions.values():
            try:
                found += [
                    schema_of(tensors, self.settings.features, self.settings.text)
                ]
            except DriftError as error:
                problems.append(error)
        if problems and not found:
            raise problems[0]
        return found

    def _schema_to_learn(self) -> Schema:
        wanted = self._wanted_schemas()
        if self.learner is not None and self.learner.schema in wanted:
            return self.learner.schema
        return wanted[0]

    def _profile(self) -> Profile | None:
        """The reference there is: of the file, or learnt before; the same if unchanged."""
        path = self.settings.reference
        if path is not None:
            return self._unless_known(read_whole(path))
        wanted = self._wanted_schemas()
        for profile in self._learnt_before():
            if not all(profile.schema.differences(schema) for schema in wanted):
                return profile
        return None

    def _learnt_before(self) -> Iterator[Profile]:
        """Yield the references that were learnt: of now, and of the signature before."""
        if self.watch is not None:
            yield self.watch.profile
        for what in (PROFILE, FORMER):
            data = self._store.read(what)
            if data is None:
                continue
            try:
                yield self._unless_known(data)
            except DriftError as error:
                self._store.set_aside(what, str(error))
        if self._former is not None:
            yield self._former.profile

    def _unless_known(self, data: bytes) -> Profile:
        profile = self._named(Profile.from_bytes(data))
        known = None if self.watch is None else self.watch.profile
        if known is not None and known.fingerprint == profile.fingerprint:
            return known
        return profile

    def _named(self, profile: Profile) -> Profile:
        """The profile, with names that the model's other side does not have."""
        side = self.settings.watched.replace("_", " ")
        if side == "inputs":
            return profile
        return replace(profile, joint_name=f"{RESERVED} {side})")

    def _learn(self, schema: Schema) -> None:
        if self.learner is None or self.learner.schema != schema:
            if self.settings.learn is None:
                raise ProfileError(["found neither a reference nor `learn`"])
            self._stop_learning()
            self.learner = Learner(
                schema, self.settings.learn, self._clock, self._wall_clock
            )
        self._put_by()
        self.state = "learning"

    def _put_by(self) -> None:
        """Keep a watch whose signature is gone, for a rollback."""
        self._former, self.watch = self.watch or self._former, None

    def _watch(self, profile: Profile) -> None:
        # Of a reference that was not the last one the state is another's.
        known = self.settings.learn is None or self._store.keep(profile)
        former = self._former
        if former is not None and former.profile.fingerprint == profile.fingerprint:
            watch, self._former = former, None
        else:
            watch = self._restored(profile) if known else self._fresh(profile)
            if self.settings.forecast is not None:
                self._reads(_OUTLOOK, self.outlooks.restore)
        if self.settings.learn is None:
            self._former = None
        else:
            self._put_by()
        self.watch = watch
        if self._store.kept:
            self.save_by = self._wall_clock() + self.settings.state_seconds
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

    def _restored(self, profile: Profile) -> Watch:
        watch = self._fresh(profile)
        return watch if self._reads(_STATE, watch.restore) else self._fresh(profile)

    def _reads(self, what: str, restore: Callable[[bytes], None]) -> bool:
        """Restore from a file, if there is one; return False if it was not usable."""
        saved = self._store.read(what)
        try:
            if saved is not None:
                restore(saved)
        except StateError as error:
            self._store.set_aside(what, str(error))
            return False
        return True

    def _fresh(self, profile: Profile) -> Watch:
        return Watch(
            profile, self.settings, clock=self._clock, wall_clock=self._wall_clock
        )

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
            self._put_by()
            self._stop_learning()

    def _still_fits(self) -> bool:
        """Return whether what runs can continue although its successor is refused."""
        current = self.watch.profile if self.watch is not None else self.learner
        if current is None:
            return False
        try:
            self._rows, _ = self._counted(current.schema)
        except ProfileError:
            return False
        return True

    def step(self, accuracy: float | None) -> None:
        """Evaluate windows and save the state, if due.

        `accuracy` is the model's estimated one.
        """
        if self.embedded is not None and (rows := self.embedded.rows()):
            self.add(rows, "")
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
        self._log("info", "drift_reference_learnt", rows=profile.rows)
        try:
            self._watch(profile)
            self.learner = None
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
        getattr(log, level)(
            event, model=self.model, side=self.settings.watched, **fields
        )

    def close(self) -> None:
        """Write the state; a reference that is still being learnt is lost."""
        self.save()
        self._stop_learning()

    def _stop_learning(self) -> None:
        learner, self.learner = self.learner, None
        if learner is not None and learner.rows:
            self._log("warning", "drift_learning_lost", rows=learner.rows)

    def save(self) -> None:
        """Write the state, now."""
        if self.watch is None or not self._store.kept:
            return
        began = self._clock()
        is_saved = self._store.write(_STATE, *self.watch.state())
        if self.settings.forecast is not None:
            self._store.write(_OUTLOOK, self.outlooks.state())
        if self.embedded is not None:
            self.embedded.save(self.watch.profile)
        now = self._clock()
        pause = max(self.settings.state_seconds, (now - began) / _SAVING_SHARE)
        self._save_due = now + pause
        if is_saved:
            self.saved_at = self._wall_clock()
            self.save_by = self.saved_at + pause
