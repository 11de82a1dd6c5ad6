"""Scores of answers against labels and expected answers."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import numpy as np

from drift.numerics import dependence
from drift.numerics.answer_distribution import Shape, shape_of
from drift.numerics.confidence_calibration import Calibration, calibrate
from drift.numerics.normal import share_interval
from exporter.errors import TritonError
from exporter.features.golden import answer_quality
from exporter.features.golden.golden_checks import equality
from exporter.features.golden.golden_data import groups_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from drift.numerics.normal import Bools, Floats, Ints
    from exporter.features.golden.golden_checks import AnswerCheck, Embed, Judged
    from exporter.features.golden.golden_data import Prepared
    from exporter.features.golden.golden_settings import GoldenData
    from exporter.triton.protocol_types import Array, ModelSpec

Outcome = Literal["right", "wrong", "invalid", "unanswered", "cached", "unjudged"]
OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)
Task = Literal["classification", "regression", "answers"]
_MOST_KEPT: Final = 4_000_000
_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Judgement:
    """The score of one request's answers; `fault` describes what is wrong, for people."""

    outcomes: Counter[Outcome]
    right: Bools | None = None
    """(rows,) against the labels."""
    fault: str = ""
    unjudged: str = ""
    """Why some answers could not be judged."""


class Scoring:
    """The latest answer to each sample of a set, judged. Not thread-safe.

    `embed` embeds texts; it is needed for checks by embeddings.
    """

    def __init__(
        self,
        prepared: Prepared,
        settings: GoldenData,
        spec: ModelSpec,
        embed: Embed | None = None,
    ) -> None:
        self.prepared, self.settings, self.spec = prepared, settings, spec
        rows = prepared.golden.rows
        self.output = self._scored_output()
        self.task: Task = self._task()
        self._names: dict[str, int] = {}
        """Number of each class, by its name."""
        self._truth = self._labels()
        self.groups = groups_of(prepared.inputs)
        """(n,) the same number for samples that are (nearly) the same."""
        self.answered, self.matched, self._right = np.zeros((3, rows), np.bool_)
        self._rank = np.zeros(rows, np.int64)
        self._predicted = np.full(rows, -1, np.int64)
        self._cosine, self._confidence, self._error = np.full((3, rows), np.nan)
        self._scores: Floats | None = None
        self.reading = answer_quality.ScoreReading(rows)
        self._checks = self._checks_of_outputs(embed)
        self._tensors = {name: np.zeros(rows, np.bool_) for name in self._checks}

    def _scored_output(self) -> str:
        names = [tensor.name for tensor in self.spec.outputs]
        wanted = self.settings.output
        golden, version = self.prepared.golden, f"version {self.spec.version}"
        has = f"{self.spec.name} {version} has the outputs {sorted(names)[:_SHOWN]}"
        if wanted and wanted not in names:
            raise golden.problem(f"no such output to score: {has}", name=wanted)
        if not wanted and len(names) > 1 and golden.labels is not None:
            reason = f"{has}; set `output` to the one that the label belongs to"
            raise golden.problem(reason, name=self.settings.label)
        return wanted or names[0]

    def _checks_of_outputs(self, embed: Embed | None) -> dict[str, AnswerCheck]:
        golden, settings = self.prepared.golden, self.settings
        checks: dict[str, AnswerCheck] = {
            name: equality(
                rows, settings.tolerance_relative, settings.tolerance_absolute
            )
            for name, rows in self.prepared.expected.items()
        }
        texts = {t.name for t in self.spec.outputs if t.datatype == "BYTES"}
        for check in settings.checks:
            if check.output not in texts:
                raise golden.problem(
                    f"{self.spec.name} version {self.spec.version} has no such output "
                    f"of text to check; it has {sorted(texts)[:_SHOWN]}",
                    name=check.output,
                )
            checks[check.output] = check.build(golden, embed)
        return checks

    @property
    def is_checked(self) -> bool:
        """Return whether answers themselves are checked, labels apart."""
        return bool(self._checks)

    def _task(self) -> Task:
        labels = self.prepared.golden.labels
        if labels is None:
            return "answers"
        if self.settings.task is not None:
            return self.settings.task
        return "regression" if labels.dtype.kind == "f" else "classification"

    def _labels(self) -> NDArray[Any] | None:
        golden, classes = self.prepared.golden, self.settings.classes
        labels = golden.labels
        if labels is None:
            return None
        if self.task == "regression":
            if {t.name: t.datatype for t in self.spec.outputs}[self.output] == "BYTES":
                raise golden.problem("is text; want numbers", name=self.output)
            truth = labels.reshape(golden.rows, -1)
            self._check_width(truth.shape[1])
            return truth
        if not classes:
            if labels.dtype.kind not in "biu":
                raise golden.problem(
                    f"found {labels[0]!r:.60}; want a class number from 0, or set "
                    "`classes` to their order",
                    name=self.settings.label,
                    row=0,
                )
            numbers = labels.astype(np.int64)
            self._names = {str(number): number for number in numbers.tolist()}
        else:
            self._names = {str(name): place for place, name in enumerate(classes)}
            numbers = np.array(
                [self._names.get(answer_quality.text(label), -1) for label in labels]
            )
        if (numbers < 0).any():
            row = int(np.argmax(numbers < 0))
            raise golden.problem(
                f"found {labels[row]!r:.60}, which is not among the classes",
                name=self.settings.label,
                row=row,
            )
        return numbers

    def _check_width(self, width: int) -> None:
        shape = {t.name: t.shape for t in self.spec.outputs}[self.output]
        row = shape[1:] if self.prepared.batched else shape
        if min(row, default=1) > 0 and math.prod(row) != width:
            reason = (
                f"a row has {width} numbers, the output {self.output!r} "
                f"{math.prod(row)}; want as many, or set `task` to classification"
            )
            raise self.prepared.golden.problem(reason, name=self.settings.label)

    def judge(self, places: Ints, outputs: Mapping[str, Array]) -> Judgement:
        """Score the answers to the samples at `places`, rows first."""
        needed = {*self._checks}
        if self._truth is not None:
            needed.add(self.output)
        if needed - outputs.keys():
            missing, found = min(needed - outputs.keys()), sorted(outputs)[:_SHOWN]
            self.unanswered(places)
            fault = f"output {missing!r} is missing; found {found}"
            return Judgement(Counter({"invalid": len(places)}), fault=fault)
        valid = self._valid(outputs)
        judged, unjudged = self._judged(places, outputs)
        expected = self._compare(places, judged)
        right = self._against_labels(places, outputs)
        well = valid & expected
        if right is not None and not self.is_checked:
            well &= right
        # What another check fails is wrong, whatever the one that failed would say.
        self.answered[places] = ~(valid & well) if unjudged else True
        self.matched[places] = expected & valid
        counted: Counter[Outcome] = Counter()
        counted["invalid"] = int((~valid).sum())
        counted["unjudged" if unjudged else "right"] = int((valid & well).sum())
        counted["wrong"] = len(places) - counted.total()
        fault = self._fault(places, outputs, valid, expected, judged)
        return Judgement(counted, right, fault, unjudged)

    def _judged(
        self, places: Ints, outputs: Mapping[str, Array]
    ) -> tuple[dict[str, Judged], str]:
        """Return what each check found, and why one could not be made."""
        judged: dict[str, Judged] = {}
        reason = ""
        for name, check in self._checks.items():
            try:
                judged[name] = check(places, outputs[name])
            except TritonError as error:
                reason = str(error)
        return judged, reason

    def unanswered(self, places: Ints) -> None:
        """Record samples without an answer: their earlier scores are outdated."""
        self.answered[places] = False

    def _valid(self, outputs: Mapping[str, Array]) -> Bools:
        rows = len(next(iter(outputs.values())))
        valid = np.ones(rows, np.bool_)
        if self._truth is not None:
            size, wanted = outputs[self.output].size, self._truth[:rows].size
            if not size or (self.task == "regression" and size != wanted):
                return ~valid
        for array in outputs.values():
            if array.dtype.kind == "f":
                valid &= np.isfinite(array.reshape(rows, -1)).all(axis=1)
        return valid

    def _compare(self, places: Ints, judged: Mapping[str, Judged]) -> Bools:
        together = np.ones(len(places), np.bool_)
        for name, found in judged.items():
            self._tensors[name][places] = found.passes
            together &= found.passes
            if name == self.output and found.cosine is not None:
                self._cosine[places] = found.cosine
        return together

    def _against_labels(
        self, places: Ints, outputs: Mapping[str, Array]
    ) -> Bools | None:
        output = outputs.get(self.output)
        if output is None:
            return None
        is_classes = True if self.task == "classification" else None
        if is_classes and self._truth is not None:
            named = answer_quality.named_classes(output, self._names)
            if named is not None:
                return self._named(places, named, self._truth[places])
        if is_classes and self.reading.changes(places, output):
            self.answered[:] = False
        shape = shape_of(output, classes=is_classes, logits=self.reading.logits)
        if shape.predicted is not None:
            self._confidence[places] = shape.confidence
            self._predicted[places] = shape.predicted
        if self._truth is None:
            return None
        if self.task == "regression":
            found = output.reshape(len(places), -1).astype(np.float64)
            truth = self._truth[places]
            fits = found.shape == truth.shape
            self._error[places] = np.abs(found - truth).mean(1) if fits else np.nan
            return None
        return self._classes(places, shape, self._truth[places])

    def _named(self, places: Ints, predicted: Ints, truth: Ints) -> Bools:
        """Record answers that name a class and have no scores."""
        right: Bools = np.equal(predicted, truth)
        self._right[places], self._predicted[places] = right, predicted
        self._rank[places] = np.where(right, 0, self.answered.size)
        self._confidence[places] = np.nan
        return right

    def _classes(self, places: Ints, shape: Shape, truth: Ints) -> Bools:
        if shape.scores is None:
            raise AssertionError("class outputs always have scores")
        scores = np.where(np.isnan(shape.scores), -np.inf, shape.scores)
        self._rank[places] = answer_quality.ranks(scores, truth)
        right = np.asarray(shape.predicted == truth)
        self._right[places] = right
        if scores.size // len(truth) * self.answered.size <= _MOST_KEPT:
            if self._scores is None or self._scores.shape[1] != scores.shape[1]:
                self._scores = np.full((self.answered.size, scores.shape[1]), np.nan)
            self._scores[places] = scores
        return right

    def _fault(
        self,
        places: Ints,
        outputs: Mapping[str, Array],
        valid: Bools,
        same: Bools,
        judged: Mapping[str, Judged],
    ) -> str:
        wrong = np.flatnonzero(~valid | ~same)
        if not wrong.size:
            return ""
        first, place = int(wrong[0]), int(places[wrong[0]])
        scored = self.output if self.output in outputs else next(iter(outputs))
        name = next((n for n, j in judged.items() if not j.passes[first]), scored)
        found, why = outputs[name][first], ""
        if name in judged:
            why = f", {judged[name].reason(first)}"
        return (
            f"{wrong.size} of {len(places)} answers are wrong; row {place} of "
            f"{self.prepared.golden.name}: {name!r} is "
            f"{answer_quality.shown(found)}{why}"
        )

    @property
    def right(self) -> Bools | None:
        """(n,) whether each latest answer fits its label; None without classes."""
        return self._right if self.task == "classification" else None

    def calibration(self) -> Calibration | None:
        """Accuracy by confidence of the latest answers; None without any, or classes."""
        if self.right is None:
            return None
        confidences = np.where(self.answered, self._confidence, np.nan)
        return calibrate(confidences, self._right.astype(np.float64), self.groups)

    @property
    def effective_samples(self) -> float:
        """Samples without copies that the answered ones are worth."""
        at = self.answered
        independent = dependence.copies_inflation(self.groups[at])
        return independent.effective_samples(int(at.sum()))

    def intervals(self) -> Iterator[tuple[str, str, float]]:
        """(metric, bound, ratio): 95 % intervals of the scores that are shares of samples.

        Wilson's, of the effective samples.
        """
        worth = self.effective_samples
        for metric, share in self.scores():
            if metric == "accuracy" or metric.startswith(("match", "top_")):
                lower, upper = share_interval(share, worth)
                yield metric, "lower", lower
                yield metric, "upper", upper

    def scores(self) -> Iterator[tuple[str, float]]:
        """(metric, ratio) over the samples that were answered."""
        at = self.answered
        if not at.any():
            return
        if self.task == "classification" and self._truth is not None:
            yield from self._class_scores(self._truth)
        if self.is_checked:
            yield "match", float(self.matched[at].mean())
            for name, matched in self._tensors.items():
                yield f"match:{name}", float(matched[at].mean())
            cosine = self._cosine[at]
            if np.isfinite(cosine).any():
                yield "cosine", float(np.nanmean(cosine))

    def errors(self) -> Iterator[tuple[str, float]]:
        """(metric, error in the label's own units) of a regression."""
        found = self._error[self.answered]
        # Without the answers that are no number the error would be that of the good ones.
        if self.task == "regression" and found.size and np.isfinite(found).all():
            yield "mae", float(found.mean())
            yield "rmse", float(np.sqrt(np.square(found).mean()))

    def _class_scores(self, labels: Ints) -> Iterator[tuple[str, float]]:
        at = self.answered
        truth, predicted = labels[at], self._predicted[at]
        yield "accuracy", float(self._right[at].mean())
        for k in self.settings.top_k:
            yield f"top_{k}", float((self._rank[at] < k).mean())
        yield from answer_quality.precision_recall(truth, predicted)
        if self._scores is not None:
            area = answer_quality.auc(truth, self._scores[at])
            if area is not None:
                yield "auc", area

    @property
    def confidence(self) -> float | None:
        """Mean confidence of the answered; None where it is not known of any."""
        known = self._confidence[self.answered & np.isfinite(self._confidence)]
        return float(known.mean()) if known.size else None

    def class_shares(self) -> Mapping[int, float]:
        """Share of the answers that name each class."""
        found = self._predicted[self.answered & (self._predicted >= 0)]
        names, counts = np.unique(found, return_counts=True)
        shares = counts / max(1, found.size)
        return dict(zip(names.tolist(), shares.tolist(), strict=True))
