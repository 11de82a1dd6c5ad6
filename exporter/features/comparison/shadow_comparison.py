"""One shadow comparison: paces, draws the order, pairs the answers."""

from __future__ import annotations

import functools
import math
import random
import threading
from collections import deque
from typing import TYPE_CHECKING, Final

import structlog

from drift.numerics.answer_distribution import row_hashes
from exporter import errors
from exporter.features.comparison.answer_pairs import Pairs
from exporter.features.comparison.comparison_budget import Budget, Production, Wait
from exporter.features.comparison.comparison_inputs import (
    FirstInputs,
    GoldenInputs,
    Inputs,
    MirroredInputs,
    RequestThread,
    Side,
    SyntheticInputs,
    difference,
    infer,
)
from exporter.features.comparison.comparison_settings import reference
from exporter.own_requests.execution_evidence import Watched

if TYPE_CHECKING:
    from exporter.access.collector_base import Access
    from exporter.access.inventory import ModelKey
    from exporter.access.work_board import WorkSnapshot
    from exporter.features.comparison.comparison_inputs import Input
    from exporter.features.comparison.comparison_settings import (
        ComparisonSettings,
        Metric,
    )
    from exporter.features.comparison.confidence import Interval
    from exporter.triton.protocol_types import ModelSpec

log = structlog.get_logger()

_IDLE_SECONDS: Final = 0.2
_RECENT: Final = 32
_KNOWN: Final = 8
"""Requests from which their mean busy time is preferred to a guess."""
_PATIENCE: Final = 3.0
"""A request is sent when the one before is answered, or after this multiple of the
champion's usual duration; a challenger that hangs must not delay it longer."""
_LEAST_PATIENCE_SECONDS: Final = 0.02
_MOST_OPEN: Final = 8
_NOT_COMPARED: Final = "the models have not been read yet"
_CACHED: Final = "a response cache may answer in place of a model: it knows mirrored and repeated inputs"


class Shadow:
    """Sends pairs from its own thread until closed; a new version or load begins anew.

    Raises:
        GoldenDataError: the file of inputs cannot be used.
    """

    def __init__(self, settings: ComparisonSettings, access: Access) -> None:
        self.settings = settings
        self._access = access
        send = functools.partial(infer, access, settings.timeout_seconds)
        self._champion = RequestThread(f"champion-{settings.name}", send)
        self._challenger = RequestThread(f"challenger-{settings.name}", send)
        self._rng = random.Random(settings.seed)  # noqa: S311 - an order, no secret
        self._mirrored = MirroredInputs()
        self.golden: GoldenInputs | None = None
        self.inputs = self._sources()
        self.pairs = self._new_pairs()
        self.budget = Budget(settings.budget, access.clock())
        self.wait: Wait | None = None
        """The limit that delays the next pair; None while it is not known."""
        self.keys: tuple[ModelKey, ModelKey] | None = None
        self.loads: tuple[float | None, ...] = ()
        self.problem = _NOT_COMPARED
        self._latest: WorkSnapshot | None = None
        self._recent: deque[float] = deque(maxlen=_RECENT)
        self._open: deque[tuple[Side, Side, Input]] = deque()
        self._sent: set[object] = set()
        self._ending = threading.Event()
        self._subscription = access.mirror.subscribe(self._mirrors, self._mirrored.add)
        self._thread = threading.Thread(
            target=self._run, name=f"shadow-{settings.name}", daemon=True
        )
        self._thread.start()

    @property
    def complete(self) -> bool:
        """Return whether no more requests are sent, and the verdicts are final."""
        return self.pairs.count >= self.settings.max_pairs

    @property
    def outcomes(self) -> dict[str, int]:
        """Return how many pairs ended how."""
        return {str(o): count for o, count in self.pairs.outcomes.items()}

    @property
    def budget_used(self) -> dict[str, float]:
        """Return our requests as a share of production, by resource."""
        return self.budget.used

    @property
    def inputs_name(self) -> str:
        """Return the source of the latest input."""
        return self.inputs.name

    @property
    def failure(self) -> str:
        """Return why the latest request that failed did."""
        return self.pairs.failure

    def intervals(self) -> dict[Metric, Interval]:
        """Return the interval of each metric's effect."""
        return self.pairs.intervals()

    def close(self) -> None:
        """Stop sending requests."""
        self._ending.set()
        self._subscription.close()
        self._champion.close()
        self._challenger.close()

    def update(self) -> None:
        """Add the allowance that production's latest statistics earn."""
        snapshot = self._access.work.current
        if self.keys is None or snapshot is None or snapshot is self._latest:
            # The same reading again does not show that production is idle.
            return
        self._latest = snapshot
        champion, challenger = (snapshot.models.get(key) for key in self.keys)
        if champion is None:
            self.budget.update(snapshot.at, None)
            return
        self.budget.update(
            snapshot.at,
            Production(champion.inferences, champion.production_busy_seconds),
            sum(
                max(0.0, work.busy_seconds - work.production_busy_seconds)
                for work in (champion, challenger)
                if work is not None
            ),
        )

    def _sources(self) -> Inputs:
        settings = self.settings.inputs
        made_up = SyntheticInputs(settings.overrides, self.settings.seed)
        if settings.file is not None and settings.source in {"auto", "golden"}:
            self.golden = GoldenInputs(
                settings.file, settings.label, self.settings.seed
            )
        if settings.source == "mirror":
            return self._mirrored
        drawn = self.golden or made_up
        if settings.source == "auto":
            return FirstInputs((self._mirrored, drawn))
        return drawn

    def _new_pairs(self) -> Pairs:
        settings = self.settings
        return Pairs(
            settings.wanted, settings.alpha, settings.agreement, settings.tolerance
        )

    def _mirrors(self, model: str) -> bool:
        wanted = self.settings.inputs.source in {"auto", "mirror"}
        return wanted and model == reference(self.settings.champion)[0]

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                wait = self._step()
            except Exception as error:
                self.problem = f"{type(error).__name__}: {error}"
                log.exception("comparison_broken", comparison=self.settings.name)
                wait = 1.0
            if wait > 0:
                self._ending.wait(min(wait, _IDLE_SECONDS))

    def _step(self) -> float:
        """Send one pair if it is due; return the seconds to wait before the next try."""
        self._gather()
        specs = self._specs()
        if specs is None or self.keys is None or self.complete:
            return _IDLE_SECONDS
        busy = self._pair_seconds(self.keys)
        now = self._access.clock()
        if self.problem == _NOT_COMPARED:
            self.problem = ""
        self.budget.waited(
            self._champion.waited_seconds + self._challenger.waited_seconds
        )
        self.wait = wait = self.budget.next_pair(now, 1, busy)
        if wait.seconds > 0:
            return min(wait.seconds, _IDLE_SECONDS)
        try:
            inputs = self.inputs.next(specs[0])
        except (errors.TritonError, errors.GoldenDataError) as error:
            self.problem = str(error)
            return _IDLE_SECONDS
        self.problem = ""
        if inputs is None:
            self.wait = Wait(math.inf, "inputs")
            return _IDLE_SECONDS / 4
        self._note_caches(specs, inputs)
        batched = specs[0].max_batch_size > 0
        sizes = (len(a) for a in inputs.arrays.values() if batched and a.ndim)
        rows = next(sizes, 1)
        # The rows are known only now; what they cost more is paid all the same.
        self.budget.spend(now, rows)
        self._send(specs, inputs)
        return 0.0

    def _note_caches(self, specs: tuple[ModelSpec, ModelSpec], inputs: Input) -> None:
        inventory = self._access.board.current
        if not any(Watched.of(spec, inventory).cached for spec in specs):
            return
        sent = self.keys, *row_hashes([a[None] for a in inputs.arrays.values()])
        # No cache knows generated tensors, but of few possible ones some come again.
        if sent in self._sent or self.inputs.name != SyntheticInputs.name:
            self.pairs.untimed = _CACHED
        self._sent.add(sent)

    def _send(self, specs: tuple[ModelSpec, ModelSpec], inputs: Input) -> None:
        champion, challenger = Side(specs[0]), Side(specs[1])
        order = [(self._champion, champion), (self._challenger, challenger)]
        self._rng.shuffle(order)
        accepted = set()
        for thread, side in order:
            if thread.offer(side, inputs, self._patience_seconds()):
                accepted.add(id(side))
                side.done.wait(self._patience_seconds())
        match id(champion) in accepted, id(challenger) in accepted:
            case True, True:
                self._open.append((champion, challenger, inputs))
            case False, True:
                self.pairs.add_missing("champion_missing")
            case True, False:
                self.pairs.add_missing("challenger_missing")
            case _:
                self.pairs.add_missing("both_missing")
        self._gather()

    def _patience_seconds(self) -> float:
        if not self._recent:
            return self.settings.timeout_seconds / 2
        usual = sorted(self._recent)[len(self._recent) // 2]
        return min(
            max(_PATIENCE * usual, _LEAST_PATIENCE_SECONDS),
            self.settings.timeout_seconds,
        )

    def _gather(self) -> None:
        """Add the pairs of which both answers are known now."""
        for _ in range(len(self._open)):
            champion, challenger, inputs = self._open.popleft()
            if not (champion.done.is_set() and challenger.done.is_set()):
                if len(self._open) < _MOST_OPEN:
                    self._open.append((champion, challenger, inputs))
                continue
            reply = champion.answered.reply
            if reply is not None:
                self._recent.append(reply.duration_seconds)
            self.pairs.add(champion.answered, challenger.answered, inputs.label)

    def _specs(self) -> tuple[ModelSpec, ModelSpec] | None:
        """Return both models as they are now; log why where they cannot be compared."""
        board = self._access.board
        if not board.was_read:
            # The server was not polled yet: nothing is missing.
            return None
        inventory = board.current
        try:
            champion, challenger = self.settings.models_in(inventory)
            if unlike := difference(champion, challenger):
                raise errors.InvalidRequestError(unlike)  # noqa: TRY301 - handled alike
        except errors.InvalidRequestError as error:
            # Final verdicts stay true of models that have left.
            self.problem = "" if self.complete else str(error)
            return None
        keys = (champion.key, challenger.key)
        loads = inventory.loads(keys)
        if self.keys is not None and (keys, loads) != (self.keys, self.loads):
            # Another model is compared now: earlier findings do not apply to it. Before
            # the pairs, since no pair and a problem are a comparison that cannot begin.
            self.problem = ""
            self.pairs = self._new_pairs()
            self._open.clear()
        self.keys, self.loads = keys, loads
        return champion, challenger

    def _pair_seconds(self, keys: tuple[ModelKey, ModelKey]) -> float:
        """Return the known busy seconds of one pair.

        Until the challenger has been measured, the champion's cost is assumed for it.
        """
        champion = self._busy_seconds(keys[0])
        if champion is None:
            # A client's waiting time exceeds the server's busy time.
            champion = sum(self._recent) / len(self._recent) if self._recent else 0.0
        challenger = self._busy_seconds(keys[1])
        return champion + (champion if challenger is None else challenger)

    def _busy_seconds(self, key: ModelKey) -> float | None:
        """Return the busy seconds of one request: ours, or else production's."""
        snapshot = self._access.work.current
        work = None if snapshot is None else snapshot.models.get(key)
        if work is None:
            return None
        requests = self._access.own.counts(key).ok
        ours = work.busy_seconds - work.production_busy_seconds
        if requests >= _KNOWN and math.isfinite(ours) and ours > 0:
            return ours / requests
        if work.inferences > 0 and work.production_busy_seconds > 0:
            return work.production_busy_seconds / work.inferences
        return None
