"""Model versions whose statistics our requests raise, and accounting for them.

The model asked and the steps of an ensemble follow from the configuration. What a model of
the Python backend calls by itself (BLS) is in no configuration: its requests are bracketed
by two reads of all statistics until `Footprints` knows its calls.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from exporter import errors
from exporter.access.call_evidence import Bracket
from exporter.access.inventory import latest_version, with_steps
from exporter.access.own_traffic import NOTHING, Booking, OwnCounts, Touched, ending_of

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from exporter.access.collector_base import Access
    from exporter.access.footprints import Footprints
    from exporter.access.inventory import Inventory, ModelKey
    from exporter.access.own_traffic import Activity, Asked, Ending
    from exporter.triton.model import InferRequest, ModelSpec, ModelStatistics

_MOST_STEPS: Final = 8
"""Ensembles of ensembles are followed this deep; Triton refuses a cycle."""
_MOST_TOUCHED: Final = 256
"""Limit of an ensemble's steps; one that names itself ten times has 10^8."""
_READ_SECONDS: Final = 0.25
_BOOKING_SECONDS: Final = 0.05
"""A model's backend answers first and reports to the statistics afterwards."""
_CALLING_BACKENDS: Final = frozenset({"python"})


@contextlib.contextmanager
def own_inference(
    access: Access, spec: ModelSpec, request: InferRequest, *, within_seconds: float
) -> Generator[Asked]:
    """Account for one own inference; exceptions of the body pass through.

    While a model's calls are unknown this takes up to half a second longer than the body,
    but not beyond `within_seconds` from the start.
    """
    started = access.clock()
    inventory, own = access.board.current, access.own
    footprints = own.footprints
    touched = touched_by(spec, inventory, request)
    if footprints is None or not _may_call(spec, inventory):
        with own.request(touched) as asked:
            yield asked
        return
    is_open = footprints.wants_bracket(spec, inventory.models.keys())
    is_bracketed = is_open or footprints.wants_check(spec)
    calls = footprints.calls(spec)
    activity = own.activity()
    before = _read(access, footprints) if is_bracketed else None
    began = access.clock()
    is_known = footprints.are_known(spec)
    with own.request(touched, calls=calls, calls_known=is_known) as asked:
        ending: Ending = "ok"
        try:
            yield asked
        except BaseException as error:
            ending = ending_of(error)
            raise
        finally:
            if ending == "unresolved":
                footprints.unanswered(spec)
            elif ending != "unreached":
                left = within_seconds - (access.clock() - started)
                rises = None
                if before is not None and left > _BOOKING_SECONDS + _READ_SECONDS:
                    rises = _rises(access, footprints, before)
                bracket = None
                if before is not None and rises is not None:
                    for share in touched:
                        rises.pop(share.key, None)
                    now = own.activity()
                    bracket = Bracket(
                        rises,
                        _raised_by_others(rises, calls, activity, now),
                        {key: _booked(entry).requests for key, entry in before.items()},
                        began,
                        access.clock() - began,
                        _surely_ours(rises, activity, now),
                    )
                asked.calls = footprints.add(spec, bracket, failed=ending == "failed")


def _raised_by_others(
    rises: Mapping[ModelKey, Booking],
    calls: Mapping[ModelKey, Booking],
    before: Activity,
    after: Activity,
) -> dict[ModelKey, Booking]:
    """Return the approximate increases that our other requests may have caused."""
    is_alone = not before.undecided and (
        after.undecided_begun == before.undecided_begun + 1
    )
    ours: dict[ModelKey, Booking] = {}
    for key in rises:
        then = before.counts.get(key, OwnCounts())
        now = after.counts.get(key, OwnCounts())
        under_way = calls.get(key, NOTHING)
        is_quiet = then.in_flight == NOTHING and now == replace(
            then, in_flight=under_way
        )
        if not (is_alone and is_quiet):
            ours[key] = now.ended - then.ended
    return ours


def _surely_ours(
    rises: Mapping[ModelKey, Booking], before: Activity, after: Activity
) -> dict[ModelKey, int]:
    """Return our requests that started and ended in between, and succeeded."""
    found = {}
    for key in rises:
        then = before.counts.get(key, OwnCounts())
        now = after.counts.get(key, OwnCounts())
        ended = now.done.requests - then.done.requests - then.in_flight.requests
        if ended > 0:
            found[key] = ended
    return found


def touched_by(
    spec: ModelSpec, inventory: Inventory, request: InferRequest
) -> list[Touched]:
    """The model versions whose statistics one request to `spec` raises, it first."""
    batch_size = next((a.shape[0] for a in request.inputs.values() if a.ndim), 1)
    touched: list[Touched] = []
    _add_touched(touched, (spec.name, spec.version), spec, inventory, batch_size)
    return touched


def _add_touched(
    touched: list[Touched],
    key: ModelKey,
    spec: ModelSpec | None,
    inventory: Inventory,
    batch_size: int,
    levels: int = _MOST_STEPS,
    *,
    behind_cache: bool = False,
) -> None:
    size = batch_size if spec is not None and spec.max_batch_size > 0 else 1
    is_cached = behind_cache or (spec is not None and spec.response_cache)
    fails_twice = spec is not None and (bool(spec.steps) or spec.queue_limits)
    touched.append(Touched(key, size, not is_cached, not behind_cache, fails_twice))
    for model, version in spec.steps if spec and levels else ():
        resolved = version or latest_version(inventory, model)
        if resolved is None:
            continue
        if len(touched) >= _MOST_TOUCHED:
            break
        step = (model, resolved)
        _add_touched(
            touched,
            step,
            inventory.models.get(step),
            inventory,
            batch_size,
            levels - 1,
            behind_cache=is_cached,
        )


def _may_call(spec: ModelSpec, inventory: Inventory) -> bool:
    return any(
        reached.backend in _CALLING_BACKENDS
        for reached in with_steps(spec, inventory).values()
    )


def _read(
    access: Access, footprints: Footprints
) -> dict[ModelKey, ModelStatistics] | None:
    began, found = access.clock(), None
    with contextlib.suppress(errors.TritonError):
        entries = access.grpc.statistics(timeout_seconds=_READ_SECONDS)
        found = {(entry.name, entry.version): entry for entry in entries}
    footprints.has_read(access.clock() - began)
    return found


def _rises(
    access: Access, footprints: Footprints, before: dict[ModelKey, ModelStatistics]
) -> dict[ModelKey, Booking] | None:
    time.sleep(_BOOKING_SECONDS)
    after = _read(access, footprints)
    if after is None:
        return None
    rises = {
        key: _booked(entry) - _booked(before[key]) if key in before else _booked(entry)
        for key, entry in after.items()
    }
    return {key: rise for key, rise in rises.items() if rise.requests > 0}


def _booked(entry: ModelStatistics) -> Booking:
    return Booking(
        entry.success.count + entry.fail.count,
        entry.inference_count,
        {batch.batch_size: batch.compute_infer.count for batch in entry.batches},
    )
