"""Drift of models' data from their references, as seen by the taps."""

from __future__ import annotations

import time
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

import structlog

from exporter import catalogue
from exporter.access.inventory import versions_of
from exporter.access.own_traffic import REQUEST_ID_PREFIX
from exporter.features.drift import drift_samples
from exporter.features.drift.drift_embedding import EmbeddedTexts
from exporter.features.drift.drift_state import Store
from exporter.features.drift.drift_subject import Subject
from exporter.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from exporter.access.collector_base import Access
    from exporter.access.mirror_hub import Mirrored, Subscription
    from exporter.features.drift.drift_settings import (
        DriftCollectorSettings,
        DriftSettings,
    )
    from exporter.samples import AnySample

log = structlog.get_logger()

MAX_SUBJECTS: Final = 200


class DriftCollector:
    """One subject for each model and side that an entry asks for.

    Requests are counted in the taps' threads; windows are judged here.
    """

    def __init__(
        self,
        settings: DriftCollectorSettings,
        access: Access,
        *,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._entries = settings.entries
        self._access = access
        self._wall_clock = wall_clock
        self.subjects: dict[tuple[str, str], Subject] = {}
        self._wanted: dict[str, tuple[Subject, ...]] = {}
        self._subscription: Subscription | None = None
        self._present: set[str] = set()
        self._full = False
        self._predecessor: DriftCollector | None = None
        self.successor: DriftCollector | None = None

    def inherit(self, predecessor: object) -> None:
        """Keep what unchanged entries have learnt and watched, from the first run on."""
        if isinstance(predecessor, DriftCollector):
            self._predecessor, predecessor.successor = predecessor, self

    def collect(self) -> Sequence[AnySample]:
        """Judge the windows that are due, and return all samples."""
        # Not before: a predecessor may still be saving what is restored here.
        self.take_over()
        if self._subscription is None:
            self._subscription = self._access.mirror.subscribe(
                self._is_watched, self._receive
            )
        self._discover()
        accuracies = self._accuracies()
        for key, subject in list(self.subjects.items()):
            subject.step(accuracies.get(subject.model))
            if subject.embedded is not None and subject.embedded.is_updated:
                log.warning("drift_embedding_model_changed", model=subject.model)
                subject.close()
                subject.embedded.discard()
                del self.subjects[key]
                self._discover()
        return list(self._samples())

    def close(self) -> None:
        """Unsubscribe, and save all state."""
        if self._subscription is not None:
            self._subscription.close()
        self._wanted = {}
        for subject in self.subjects.values():
            if self.successor is not None and self.successor.continues(subject):
                subject.save()
            else:
                subject.close()

    def continues(self, subject: Subject) -> bool:
        """Return whether an entry here is the one that a subject was made for."""
        return subject.settings in self._entries_of(subject.model)

    def take_over(self) -> None:
        """Take the subjects of unchanged entries from the predecessor, once."""
        predecessor, self._predecessor = self._predecessor, None
        if predecessor is not None:
            predecessor.take_over()
            self.subjects = {
                key: subject
                for key, subject in predecessor.subjects.items()
                if self.continues(subject)
            }

    def document(self) -> dict[str, Any]:
        """Return the watched models, their changes, and reasons why others are not watched."""
        subjects = list(self.subjects.values())
        return {"drift": [drift_samples.document(subject) for subject in subjects]}

    def _discover(self) -> None:
        inventory = self._access.board.current
        self._present = {name for name, _ in inventory.models}
        for model in sorted(self._present):
            specs = versions_of(inventory, model)
            used: set[str] = set()
            for entry in self._entries_of(model):
                subject = self._subject(model, entry)
                if subject is None:
                    continue
                subject.consider(specs, used)
                if subject.watch is not None:
                    used |= set(subject.watch.profile.schema.names)
                elif subject.learner is not None:
                    used |= set(subject.learner.schema.names)
        wanted: dict[str, list[Subject]] = {}
        for subject in self.subjects.values():
            if subject.wanted:
                wanted.setdefault(subject.model, []).append(subject)
        self._wanted = {model: tuple(found) for model, found in wanted.items()}

    def _entries_of(self, model: str) -> list[DriftSettings]:
        """The first entry for each side."""
        found: dict[str, DriftSettings] = {}
        for entry in self._entries:
            if fnmatchcase(model, entry.models):
                found.setdefault(entry.watched, entry)
        return [found[side] for side in sorted(found)]

    def _subject(self, model: str, entry: DriftSettings) -> Subject | None:
        key = (model, entry.watched)
        if key not in self.subjects:
            if len(self.subjects) >= MAX_SUBJECTS and not self._make_room():
                if not self._full:
                    log.warning("drift_models_full", most=MAX_SUBJECTS, first=model)
                self._full = True
                return None
            embedded = None
            if entry.embedding is not None:
                store = Store(entry.state, model, entry.watched)
                embedded = EmbeddedTexts(entry.embedding, self._access, store)
            self.subjects[key] = Subject(
                entry,
                model,
                clock=self._access.clock,
                wall_clock=self._wall_clock,
                embedded=embedded,
            )
        return self.subjects[key]

    def _make_room(self) -> bool:
        """Drop a model that the server no longer has; return whether there was one."""
        for key, subject in self.subjects.items():
            if subject.model not in self._present:
                subject.close()
                del self.subjects[key]
                return True
        return False

    def _is_watched(self, model: str) -> bool:
        return model in self._wanted

    def _receive(self, requests: Sequence[Mirrored]) -> None:
        for request in requests:
            # Our own requests are no traffic.
            if request.request_id.startswith(REQUEST_ID_PREFIX):
                continue
            for subject in self._wanted.get(request.model, ()):
                inputs = subject.settings.side == "inputs"
                tensors = request.inputs if inputs else request.outputs
                if tensors and subject.embedded is not None:
                    subject.embedded.add(tensors)
                elif tensors:
                    subject.add(tensors, request.version)

    def _accuracies(self) -> dict[str, float]:
        """The estimated accuracy of each model, the worst of its versions."""
        found: dict[str, float] = {}
        for sample in self._access.exposed():
            estimated = sample.spec is catalogue.ESTIMATED_ACCURACY
            if estimated and isinstance(sample, Sample):
                model = sample.labels[0]
                found[model] = min(sample.value, found.get(model, sample.value))
        return found

    def _samples(self) -> Iterator[AnySample]:
        # An unloaded model keeps its evidence, should it come back, and shows nothing.
        shown = [s for s in self.subjects.values() if s.model in self._present]
        models: dict[str, list[Subject]] = {}
        for subject in shown:
            models.setdefault(subject.model, []).append(subject)
        # Most important series first: a series limit cuts off the end.
        for model, subjects in models.items():
            yield from drift_samples.of_model(model, subjects)
        for subject in shown:
            yield from drift_samples.of_features(subject)
