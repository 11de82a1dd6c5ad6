"""One model version under a golden probe: its next request, and its results."""

from __future__ import annotations

from collections import Counter, deque
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from exporter import catalogue
from exporter.access.calibration_board import Calibrated
from exporter.access.probe_base import Verdict
from exporter.features.golden.golden_budget import (
    WINDOW_SECONDS,
    Budget,
    loss_chart,
)
from exporter.features.golden.golden_data import prepare
from exporter.features.golden.golden_scoring import OUTCOMES, Scoring
from exporter.own_requests.asking import Asker
from exporter.own_requests.embedding import TextEmbedder
from exporter.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np

    from drift.numerics.normal import Bools, Ints
    from exporter.access.collector_base import Access
    from exporter.access.probe_base import Target
    from exporter.features.golden.golden_data import GoldenSet
    from exporter.features.golden.golden_history import GoldenHistory
    from exporter.features.golden.golden_settings import GoldenSettings
    from exporter.samples import AnySample
    from exporter.triton.protocol_types import ModelSpec

log = structlog.get_logger()

_SHOWN_CLASSES: Final = 100
_SCORE_SECONDS: Final = 1.0
_HEALED: Final = 0.5


class ModelState:
    """Rounds over one golden set for one model version; one worker at a time."""

    def __init__(
        self,
        settings: GoldenSettings,
        access: Access,
        spec: ModelSpec,
        target: Target,
        golden: GoldenSet,
        history: GoldenHistory,
        rng: np.random.Generator,
    ) -> None:
        self._settings = settings
        self._access = access
        self._spec = spec
        self._golden = golden
        self._history = history
        self._rng = rng
        self._labels = (*target.key, settings.dataset)
        asker_of = partial(
            Asker,
            access,
            rng=rng,
            timeout_seconds=settings.timeout_seconds,
            linger_seconds=settings.linger_seconds,
        )
        self._asker = asker_of(
            spec, protocol=target.protocol, ignored_input=settings.ignored_input
        )
        self._budget = Budget(settings)
        self._prepared = prepare(golden, spec, settings.ignored_input)
        self._embedder = TextEmbedder(
            access.board, partial(asker_of, protocol=settings.protocol)
        )
        self._scoring = Scoring(
            self._prepared, settings.data, spec, self._embedder.vectors
        )
        # Last: of data that do not fit the model, nothing is remembered.
        self._watched = history.of(target.key, golden.sha256)
        self._left: deque[Ints] = deque()
        self._outcomes: Counter[str] = Counter()
        self._unjudged = ""
        self._rounds = 0
        self._scored_at = -_SCORE_SECONDS
        self._answered_at = access.clock()
        self._scores: Sequence[AnySample] = ()
        self._published: Sequence[AnySample] = ()

    def fits(self, spec: ModelSpec, golden: GoldenSet) -> bool:
        """Return whether this is still the same model and the same set."""
        return spec == self._spec and golden.sha256 == self._golden.sha256

    @property
    def is_fresh(self) -> bool:
        """True unless the latest answer is too old to say anything about now."""
        settings = self._settings
        fresh = (
            2 * settings.interval_seconds * (1 + settings.jitter_ratio)
            + settings.timeout_seconds
            + settings.linger_seconds
            + WINDOW_SECONDS
        )
        return self._access.clock() - self._answered_at <= fresh

    def samples(self) -> Sequence[AnySample]:
        """Return the samples of the latest attempt; of old answers only the counters."""
        if self.is_fresh:
            return self._published
        return [
            sample
            for sample in self._published
            if sample.spec.kind != "gauge" or sample.spec is catalogue.GOLDEN_USABLE
        ]

    def attempt(self) -> Verdict | None:
        """Send the next rows of the round, if the budget allows it."""
        if not self._left:
            self._left.extend(self._round())
        now = self._access.clock()
        self._read_production()
        # Each check by embeddings takes one request, if it can.
        sizes = [self._embedder.size(c.model) for c in self._settings.data.embeddings]
        rows = min([len(self._left[0]), *(max(1, size // 2) for size in sizes)])
        if not self._budget.allows(now, 1 + sum(-(-2 * rows // s) for s in sizes)):
            return None
        places = self._left.popleft()
        if len(places) > rows:
            self._left.appendleft(places[rows:])
        requests, seconds = self._sent()
        verdict = self._send_rows(places[:rows])
        done = self._access.clock()
        if verdict.outcome != "cached":
            self._answered_at = done
        sent = self._sent()
        self._budget.add_own(done, sent[0] - requests, sent[1] - seconds)
        if not self._left:
            self._end_round()
        self._publish(done)
        return verdict

    def _sent(self) -> tuple[int, float]:
        """Return the requests so far, and their seconds."""
        asker, embedder = self._asker, self._embedder
        return asker.requests + embedder.requests, asker.seconds + embedder.seconds

    def _round(self) -> Iterator[Ints]:
        order = self._rng.permutation(self._prepared.golden.rows)
        spec = self._spec
        # The generate extension carries one row at a time.
        over_http = spec.decoupled and self._settings.protocol == "http"
        most = 1 if over_http else spec.most_rows
        size = min(self._settings.samples_per_request, most)
        for begin in range(0, len(order), size):
            yield order[begin : begin + size]

    def _send_rows(self, places: Ints) -> Verdict:
        prepared, scoring = self._prepared, self._scoring
        answer = self._asker.ask(prepared.request(places), prepared.datatypes)
        if answer.cached:
            self._outcomes["cached"] += len(places)
            return answer.verdict()
        if answer.error is not None:
            self._outcomes["unanswered"] += len(places)
            scoring.unanswered(places)
            return answer.verdict()
        outputs = answer.outputs
        if not prepared.batched:
            outputs = {name: array[None] for name, array in outputs.items()}
        short = {n: len(a) for n, a in outputs.items() if len(a) != len(places)}
        if short:
            self._outcomes["invalid"] += len(places)
            scoring.unanswered(places)
            return answer.verdict(
                f"{len(places)} rows were sent, {short} answers came back"
            )
        judged = scoring.judge(places, outputs)
        self._outcomes.update(judged.outcomes)
        if judged.right is not None:
            self._watch_loss(judged.right)
        if judged.unjudged and not self._unjudged:
            log.warning(
                "golden_embedding_failed",
                model=self._spec.name,
                dataset=self._settings.dataset,
                reason=judged.unjudged,
            )
        self._unjudged = judged.unjudged
        if judged.unjudged and not judged.fault:
            return Verdict(
                "unjudged", answer.seconds, answer.request_id, judged.unjudged
            )
        return answer.verdict(judged.fault)

    @property
    def _given(self) -> float | None:
        return self._settings.baseline_accuracy or self._golden.accuracy

    @property
    def _baseline(self) -> float | None:
        return self._given or self._watched.baseline

    def _watch_loss(self, right: Bools) -> None:
        baseline, watched = self._baseline, self._watched
        if baseline is None:
            return
        chart = loss_chart(self._settings, baseline)
        for is_right in right.tolist():
            watched.level = chart.step(watched.level, right=is_right)
            if watched.level >= chart.limit and not watched.alarm:
                watched.alarm = True
                log.warning(
                    "golden_accuracy_lost",
                    model=self._spec.name,
                    version=self._spec.version,
                    baseline=baseline,
                    baseline_version=watched.learnt_from,
                    dataset=self._settings.dataset,
                )

    def _end_round(self) -> None:
        self._rounds += 1
        scoring, watched = self._scoring, self._watched
        if scoring.right is None or not scoring.answered.any():
            return
        accuracy = float(scoring.right[scoring.answered].mean())
        if self._baseline is None and not accuracy:
            # Nothing to lose: all of it is lost already.
            watched.alarm = True
        elif self._given is None and scoring.answered.all():
            self._learn(accuracy)
        baseline = self._baseline
        # Samples without an answer show no recovery.
        at_least = float((scoring.right & scoring.answered).mean())
        healed = _HEALED * self._settings.loss
        if watched.alarm and baseline is not None and at_least > baseline - healed:
            watched.alarm, watched.level = False, 0
        made = scoring.calibration()
        if made is not None:
            found = Calibrated(
                scoring.output, self._settings.dataset, made, scoring.reading.logits
            )
            self._history.publish(self._labels[:2], found)

    def _learn(self, accuracy: float) -> None:
        """Learn the baseline once; it is at least that of the version before.

        From the first round alone: the best of several would be too high.
        """
        watched, version = self._watched, self._spec.version
        if watched.first_round_of == version:
            return
        watched.first_round_of = version
        if accuracy < (watched.baseline or 0.0):
            return
        watched.baseline, watched.learnt_from = accuracy, version
        log.info(
            "golden_baseline_learnt",
            model=self._spec.name,
            version=version,
            dataset=self._settings.dataset,
            accuracy=accuracy,
        )

    def _read_production(self) -> None:
        snapshot = self._access.work.current
        work = None if snapshot is None else snapshot.models.get(self._labels[:2])
        if snapshot is not None and work is not None:
            self._budget.add_production(
                snapshot.at, work.requests, work.production_busy_seconds
            )

    def _publish(self, now: float) -> None:
        # Scores of 100,000 samples are too expensive to compute after every answer.
        due = now - self._scored_at >= _SCORE_SECONDS or not self._left
        if due:
            self._scored_at = now
            self._scores = tuple(self._scored(self._scoring))
        self._published = (*self._scores, *self._counted(now))

    def _scored(self, scoring: Scoring) -> Iterator[AnySample]:
        if not self._rounds:
            return
        for metric, value in scoring.scores():
            yield Sample(catalogue.GOLDEN_SCORE, value, (*self._labels, metric))
        intervals = tuple(scoring.intervals())
        for metric, bound, value in intervals:
            of = (*self._labels, metric, bound)
            yield Sample(catalogue.GOLDEN_SCORE_CI, value, of)
        if intervals:
            worth = scoring.effective_samples
            yield Sample(catalogue.GOLDEN_SCORE_EFFECTIVE, worth, self._labels)
        for metric, value in scoring.errors():
            yield Sample(catalogue.GOLDEN_ERROR, value, (*self._labels, metric))
        source = (*self._labels[:2], f"golden:{self._settings.dataset}")
        if (sure := scoring.confidence) is not None:
            yield Sample(catalogue.OUTPUT_CONFIDENCE, sure, source)
        for number, share in scoring.class_shares().items():
            if number < _SHOWN_CLASSES:
                yield Sample(catalogue.OUTPUT_CLASS, share, (*source, str(number)))

    def _counted(self, now: float) -> Iterator[AnySample]:
        labels = self._labels
        for outcome in OUTCOMES:
            counted = (*labels, outcome)
            yield Sample(catalogue.GOLDEN_SAMPLES, self._outcomes[outcome], counted)
        yield Sample(catalogue.GOLDEN_USABLE, 1, labels)
        yield Sample(catalogue.GOLDEN_INFO, 1, (*labels, self._golden.sha256))
        yield Sample(catalogue.GOLDEN_ROUNDS, self._rounds, labels)
        baseline, alarm = self._baseline, self._watched.alarm
        scoring = self._scoring
        if scoring.right is not None and baseline is not None:
            yield Sample(catalogue.GOLDEN_BASELINE, baseline, (*labels, "accuracy"))
            held = loss_chart(self._settings, baseline).arl
            yield Sample(catalogue.GOLDEN_RUN_LENGTH, held, labels)
        if scoring.right is not None and (baseline is not None or alarm):
            yield Sample(catalogue.GOLDEN_FAILING, alarm, (*labels, "labels"))
        if scoring.is_checked and scoring.answered.any():
            wrong = not scoring.matched[scoring.answered].all()
            yield Sample(catalogue.GOLDEN_FAILING, wrong, (*labels, "expected"))
        yield from self._budget_used(now)

    def _budget_used(self, now: float) -> Iterator[AnySample]:
        spent = self._budget.spent(now)
        for what, ours, theirs in (
            ("requests", spent.requests, spent.production_requests),
            ("busy", spent.busy_seconds, spent.production_busy_seconds),
        ):
            if ours + theirs > 0:
                share = ours / (ours + theirs)
                yield Sample(catalogue.GOLDEN_BUDGET, share, (*self._labels, what))
