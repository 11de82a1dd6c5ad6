"""Answers of production from the taps: distribution and estimated accuracy."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from drift.numerics.answer_distribution import row_hashes, shape_of
from exporter import catalogue
from exporter.access.inventory import find_model
from exporter.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from drift.numerics.answer_distribution import Shape
    from drift.numerics.confidence_calibration import Condition
    from drift.numerics.normal import Floats, Ints
    from exporter.access.collector_base import Access
    from exporter.access.inventory import ModelKey
    from exporter.access.mirror_hub import Mirrored
    from exporter.features.outputs.outputs_settings import OutputsSettings
    from exporter.samples import AnySample
    from exporter.triton.protocol_types import Array, ModelSpec, TensorSpec

_SOURCE: Final = "production"
_INPUTS: Final = "inputs"
_SHOWN_CLASSES: Final = 100
_LEAST_ROWS: Final = 50
_MOST_AGE_SECONDS: Final = 3600.0
"""Age of the latest answer from which the answers say nothing of the present."""
_CONFIDENCE, _CLASS = range(2)


@dataclass(slots=True)
class _Doubts:
    """Exposed findings on drift and golden sets that limit the estimates' validity."""

    alarm: set[str] = field(default_factory=set)
    """Models with a drift alarm, on inputs or outputs."""
    watched: set[str] = field(default_factory=set)
    """Models with at least one judged window of their inputs."""
    guaranteed: dict[str, bool] = field(default_factory=dict)
    """By model: True if the false-alarm rate of its input drift is guaranteed."""
    failing: dict[ModelKey, bool] = field(default_factory=dict)
    """By model version: True if any golden set lost accuracy."""

    def note(self, sample: Sample) -> None:
        """Record one exposed sample; ignore other metrics."""
        labels, value = sample.labels, bool(sample.value)
        if sample.spec is catalogue.MODEL_DRIFT_ALARM and value:
            self.alarm.add(labels[0])
        elif sample.spec is catalogue.DRIFT_WINDOW_TIMESTAMP and labels[1] == _INPUTS:
            self.watched.add(labels[0])
        elif sample.spec is catalogue.DRIFT_PROMISE and labels[1] == _INPUTS:
            self.guaranteed[labels[0]] = value
        elif sample.spec is catalogue.GOLDEN_FAILING and labels[-1] == "labels":
            key = labels[0], labels[1]
            self.failing[key] = value or self.failing.get(key, False)


class _Window:
    """The latest rows of one model version, in a ring."""

    def __init__(self, rows: int, outputs: Sequence[TensorSpec]) -> None:
        self.outputs = outputs
        self.latest_at = 0.0
        self._ring = np.full((rows, 2), np.nan)
        self._input_hashes = np.zeros(rows, np.int64)
        self.seen = 0

    def add(self, shape: Shape, input_hashes: Ints) -> None:
        """Add rows; if there are more than fit, keep the last.

        `input_hashes` (rows,) is equal for answers to the same input.
        """
        count = len(input_hashes)
        rows = np.full((count, 2), np.nan)
        if shape.confidence is not None:
            rows[:, _CONFIDENCE] = shape.confidence
        if shape.predicted is not None:
            rows[:, _CLASS] = shape.predicted
        size = len(self._ring)
        rows = rows[-size:]
        places = (self.seen + count - len(rows) + np.arange(len(rows))) % size
        self._ring[places] = rows
        self._input_hashes[places] = input_hashes[-size:]
        self.seen += count

    @property
    def rows(self) -> Floats:
        """(rows, 2), in no order."""
        return self._ring[: min(self.seen, len(self._ring))]

    @property
    def input_hashes(self) -> Ints:
        """Hashes (rows,) of the inputs of each row, in the order of `rows`."""
        return self._input_hashes[: min(self.seen, len(self._ring))]


class OutputsCollector:
    """Keeps a window of answers for each model version."""

    def __init__(self, settings: OutputsSettings, access: Access) -> None:
        self._settings = settings
        self._access = access
        self._lock = threading.Lock()
        self._windows: dict[ModelKey, _Window] = {}
        self._subscription = access.mirror.subscribe(
            settings.models.matches, self._receive
        )

    def collect(self) -> Sequence[AnySample]:
        """Return the samples of all windows."""
        doubts = _Doubts()
        for sample in self._access.exposed():
            if isinstance(sample, Sample):
                doubts.note(sample)
        with self._lock:
            present = self._access.board.current.models
            for gone in [key for key in self._windows if key not in present]:
                del self._windows[gone]
            return [
                sample
                for key, window in self._windows.items()
                for sample in self._samples(key, window, doubts)
            ]

    def close(self) -> None:
        """Unsubscribe from mirrored requests."""
        self._subscription.close()

    def _receive(self, requests: Sequence[Mirrored]) -> None:
        for request in requests:
            inventory = self._access.board.current
            spec = find_model(inventory, request.model, request.version)
            if spec is None:
                continue
            calibrated = self._access.calibration.get(spec.key)
            name = self._settings.outputs.get(spec.name) or (
                calibrated.output if calibrated else next(iter(request.outputs), "")
            )
            output = _rows_of(spec, name, request.outputs.get(name))
            if output is None:
                continue
            # Read as the golden answers are: confidences are compared with theirs.
            like_golden = calibrated is not None and calibrated.output == name
            shape = shape_of(
                output,
                classes=True if like_golden else None,
                logits=calibrated.logits if calibrated and like_golden else None,
            )
            key = spec.key
            with self._lock:
                window = self._windows.get(key)
                if window is None and len(self._windows) >= self._settings.models_limit:
                    continue
                # A model that was loaded with other outputs answers something else.
                if window is None or window.outputs != spec.outputs:
                    made = _Window(self._settings.window_rows, spec.outputs)
                    window = self._windows[key] = made
                window.latest_at = self._access.clock()
                window.add(shape, _input_hashes(request, output))

    def _samples(
        self, key: ModelKey, window: _Window, doubts: _Doubts
    ) -> Iterator[AnySample]:
        yield Sample(catalogue.OUTPUT_ROWS, window.seen, key)
        rows = window.rows
        age = self._access.clock() - window.latest_at
        if len(rows) < _LEAST_ROWS or age > _MOST_AGE_SECONDS:
            return
        source = (*key, _SOURCE)
        known = rows[np.isfinite(rows[:, _CONFIDENCE]), _CONFIDENCE]
        if known.size:
            yield Sample(catalogue.OUTPUT_CONFIDENCE, float(known.mean()), source)
        named = rows[rows[:, _CLASS] >= 0, _CLASS].astype(np.int64)
        for number, count in enumerate(np.bincount(named)[:_SHOWN_CLASSES].tolist()):
            share = count / named.size
            yield Sample(catalogue.OUTPUT_CLASS, share, (*source, str(number)))
        yield from self._estimate(key, window, doubts)

    def _estimate(
        self, key: ModelKey, window: _Window, doubts: _Doubts
    ) -> Iterator[AnySample]:
        calibrated = self._access.calibration.get(key)
        if calibrated is None:
            return
        # Answers without classes are of another output, or were read before there was
        # a golden set; their confidence is unknown, not that of a wrong answer.
        rows = window.rows
        is_read = np.isfinite(rows[:, _CLASS])
        if not is_read.any():
            return
        found = calibrated.calibration.estimate(
            rows[is_read, _CONFIDENCE], window.input_hashes[is_read]
        )
        yield Sample(catalogue.ESTIMATED_ACCURACY, found.accuracy, key)
        for bound, value in (("lower", found.low), ("upper", found.high)):
            yield Sample(catalogue.ESTIMATED_ACCURACY_CI, value, (*key, bound))
        worth = found.effective_outputs
        yield Sample(catalogue.ESTIMATED_ACCURACY_EFFECTIVE, worth, key)
        conditions = {**found.conditions, **self._conditions(key, doubts)}
        for condition, holds in conditions.items():
            yield Sample(catalogue.ESTIMATED_ACCURACY_VALID, holds, (*key, condition))

    def _conditions(self, key: ModelKey, doubts: _Doubts) -> dict[Condition, bool]:
        """Return the conditions that confidences cannot show; absent where not observed."""
        model = key[0]
        found: dict[Condition, bool] = {"drift_watched": model in doubts.watched}
        if model in doubts.alarm | doubts.watched:
            found["no_drift"] = model not in doubts.alarm
        if model in doubts.guaranteed:
            found["drift_guaranteed"] = doubts.guaranteed[model]
        agrees = self._access.calibration.agree(key)
        if agrees is not None or key in doubts.failing:
            failing = doubts.failing.get(key, False)
            found["golden_agrees"] = agrees is not False and not failing
        return found


def _rows_of(spec: ModelSpec, name: str, array: Array | None) -> Array | None:
    """Return an answer's output, rows first; None if it has none."""
    if array is None:
        return None
    shape = next((t.shape for t in spec.outputs if t.name == name), ())
    is_batched = spec.max_batch_size > 0 or (shape[:1] == (-1,) and array.ndim > 1)
    rows = array if is_batched and array.ndim else array[None]
    return rows if len(rows) else None


def _input_hashes(request: Mirrored, rows: Array) -> Ints:
    """(rows,) hashes of the inputs of each row; of its answer where no input is known."""
    inputs = [array for _, array in sorted(request.inputs.items())]
    if not inputs or (len(rows) > 1 and any(len(a) != len(rows) for a in inputs)):
        inputs = [rows]
    elif len(rows) == 1:
        inputs = [array[None] for array in inputs]
    return row_hashes(inputs)
