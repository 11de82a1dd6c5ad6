"""The ledger of own requests: what counts where, whatever way a request ends."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter import errors
from exporter.inventory import Inventory
from exporter.own_traffic import REQUEST_ID_PREFIX, OwnCounts, OwnTraffic
from exporter.probes.synthetic import touched_by
from exporter.triton.model import InferRequest, ModelSpec

PATIENT = settings(deadline=None)  # a busy machine is no failure
KEY, STEP = ("m", "1"), ("step", "2")


def ledger_after(error, touched=((KEY, 1),)):
    ledger = OwnTraffic(run_id="run")
    if error is None:
        with ledger.request(touched):
            pass
    else:
        with pytest.raises(type(error)), ledger.request(touched):
            raise error
    return ledger


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (None, OwnCounts(ok=1, batches={1: 1})),
        (errors.ModelError("inside"), OwnCounts(failed=1)),
        (
            errors.DeadlineError("late"),
            OwnCounts(unresolved=1, unresolved_batches={1: 1}),
        ),
        (
            errors.ProtocolError("garbage"),
            OwnCounts(unresolved=1, unresolved_batches={1: 1}),
        ),
        (errors.InvalidRequestError("wrong"), OwnCounts()),
        (errors.UnavailableError("away"), OwnCounts()),
        (
            RuntimeError("a bug of ours"),
            OwnCounts(unresolved=1, unresolved_batches={1: 1}),
        ),
        (KeyboardInterrupt(), OwnCounts(unresolved=1, unresolved_batches={1: 1})),
    ],
)
def test_what_a_request_ends_with_decides_where_it_counts(error, expected):
    assert ledger_after(error).counts(KEY) == expected


def test_a_request_is_in_flight_until_it_ends():
    ledger = OwnTraffic(run_id="run")
    with ledger.request([(KEY, 4)]):
        during = ledger.counts(KEY)
        assert (during.ok, during.in_flight, during.inferences_in_flight) == (0, 1, 4)
    after = ledger.counts(KEY)
    assert (after.ok, after.in_flight, after.inferences) == (1, 0, 4)
    assert after.batches_in_flight == {}


def test_a_step_used_twice_counts_twice():
    ledger = ledger_after(None, [(KEY, 1), (STEP, 1), (STEP, 1)])
    assert ledger.snapshot() == {
        KEY: OwnCounts(ok=1, batches={1: 1}),
        STEP: OwnCounts(ok=2, batches={1: 2}),
    }


def test_a_failure_is_booked_on_the_model_asked_and_on_none_of_its_steps():
    ledger = ledger_after(errors.ModelError("x"), [(KEY, 1), (STEP, 1)])
    assert ledger.snapshot() == {KEY: OwnCounts(failed=1), STEP: OwnCounts()}


def test_a_request_lost_is_lost_on_every_step():
    ledger = ledger_after(errors.DeadlineError("x"), [(KEY, 1), (STEP, 1)])
    assert {c.unresolved for c in ledger.snapshot().values()} == {1}


def test_a_snapshot_is_of_one_instant():
    ledger = OwnTraffic(run_id="run")
    with ledger.request([(KEY, 1)]):
        during = ledger.snapshot()
    assert during[KEY].in_flight == 1
    assert ledger.snapshot()[KEY].in_flight == 0


def test_no_look_ever_sees_a_request_twice_or_not_at_all():
    ledger, stop, wrong = OwnTraffic(run_id="run"), threading.Event(), []

    def look():
        while not stop.is_set():
            least = begun
            counts = ledger.counts(KEY)
            if not 0 <= counts.in_flight <= 1 or counts.in_flight + counts.ok < least:
                wrong.append(counts)

    begun = 0
    thread = threading.Thread(target=look)
    thread.start()
    for number in range(3000):
        with ledger.request([(KEY, 1)]):
            begun = number + 1
    stop.set()
    thread.join()
    assert not wrong
    assert ledger.counts(KEY) == OwnCounts(ok=3000, batches={1: 3000})


@PATIENT
@given(st.lists(st.tuples(st.integers(1, 9), st.sampled_from(["ok", "fail", "late"]))))
def test_counts_add_up(requests):
    ledger = OwnTraffic(run_id="run")
    endings = {"ok": None, "fail": errors.ModelError("x"), "late": TimeoutError()}
    for size, ending in requests:
        context = ledger.request([(KEY, size)])
        context.__enter__()
        error = endings[ending]
        assert not context.__exit__(type(error) if error else None, error, None)
    counts = ledger.counts(KEY)
    assert counts.ok == sum(counts.batches.values())
    assert counts.ok + counts.failed + counts.unresolved == len(requests)
    assert counts.inferences == sum(size for size, end in requests if end == "ok")
    assert counts.in_flight == counts.inferences_in_flight == 0


def test_a_model_that_is_gone_can_be_forgotten():
    ledger = ledger_after(None)
    assert ledger.forget(KEY)
    assert ledger.snapshot() == {}
    assert ledger.forget(("never", "seen"))


def test_a_model_with_a_request_in_flight_is_not_forgotten():
    ledger = OwnTraffic(run_id="run")
    with ledger.request([(KEY, 1)]):
        assert not ledger.forget(KEY)
    assert ledger.counts(KEY).ok == 1


def test_request_ids_are_recognisable_and_never_the_same():
    one, two = OwnTraffic(run_id="a1"), OwnTraffic(run_id="b2")
    ids = [ledger.new_request_id("synthetic") for ledger in (one, one, two, two)]
    assert len(set(ids)) == 4
    assert all(i.startswith(f"{REQUEST_ID_PREFIX}synthetic-") for i in ids)
    # An exemplar's label set may hold 128 characters in all.
    assert max(map(len, ids)) < 100


# Which statistics a request raises.


def spec(name, *steps, version="1", max_batch_size=0):
    return ModelSpec(name, version, (), (), max_batch_size, steps=steps)


def touched(asked, *others, shape=(1, 3)):
    models = {(m.name, m.version): m for m in (asked, *others)}
    inputs = {"X": np.zeros(shape)} if shape is not None else {}
    request = InferRequest(asked.name, asked.version, "id", inputs, {"X": "FP32"})
    return touched_by(asked, Inventory(models=models), request)


def test_a_model_without_batching_has_batches_of_one_whatever_the_shape():
    assert touched(spec("m"), shape=(8, 3)) == [(("m", "1"), 1)]


@pytest.mark.parametrize(
    ("shape", "size"), [((8, 3), 8), ((1,), 1), ((), 1), (None, 1)]
)
def test_the_first_dimension_is_the_batch_where_the_model_batches(shape, size):
    assert touched(spec("m", max_batch_size=16), shape=shape) == [(("m", "1"), size)]


def test_an_ensemble_reaches_its_steps_at_their_latest_or_given_version():
    old, new = spec("a", version="9"), spec("a", version="10", max_batch_size=4)
    ensemble = spec("e", ("a", ""), ("a", "9"), ("gone", ""))
    assert touched(ensemble, old, new, shape=(4, 3)) == [
        (("e", "1"), 1),
        (("a", "10"), 4),
        (("a", "9"), 1),
    ]


def test_an_ensemble_of_ensembles_reaches_all_of_them():
    inner = spec("inner", ("leaf", "1"))
    assert touched(spec("outer", ("inner", "")), inner, spec("leaf")) == [
        (("outer", "1"), 1),
        (("inner", "1"), 1),
        (("leaf", "1"), 1),
    ]


def test_an_ensemble_that_says_it_contains_itself_ends():
    assert len(touched(spec("e", ("e", "")))) < 20


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "INTERNAL: Failed to process the request(s) for model 'm_0_0', message: x",
            OwnCounts(failed=1, raised_batches={1: 1}),
        ),
        ("INTERNAL: Stub process 'm_0_0' is not healthy.", OwnCounts(failed=1)),
        ("INTERNAL: no such customer", OwnCounts(ok=1, batches={1: 1})),
    ],
)
def test_an_error_of_the_python_backend_is_booked_as_triton_does(text, expected):
    ledger = OwnTraffic(run_id="run")
    error = errors.ModelError(text)
    with pytest.raises(errors.ModelError), ledger.request([(KEY, 1)], backend="python"):
        raise error
    assert ledger.counts(KEY) == expected
