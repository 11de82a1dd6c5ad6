"""Which statistics a request raises: of the model asked, of steps and of declared calls."""

from __future__ import annotations

import numpy as np
import pytest

from exporter.access.inventory import Inventory
from exporter.own_requests.reach import touched_by
from exporter.triton.protocol_types import InferRequest, ModelSpec


def spec(name, *steps, version="1", max_batch_size=0):
    return ModelSpec(name, version, (), (), max_batch_size, steps=steps)


def touched(asked, *others, shape=(1, 3), calls=None):
    models = {(m.name, m.version): m for m in (asked, *others)}
    inputs = {"X": np.zeros(shape)} if shape is not None else {}
    request = InferRequest(asked.name, asked.version, "id", inputs, {"X": "FP32"})
    return touched_by(asked, Inventory(models=models), request, calls or {})


def sizes(touched):
    return [(share.key, share.batch_size) for share in touched]


def test_a_model_without_batching_has_batches_of_one_whatever_the_shape():
    assert sizes(touched(spec("m"), shape=(8, 3))) == [(("m", "1"), 1)]


@pytest.mark.parametrize(
    ("shape", "size"), [((8, 3), 8), ((1,), 1), ((), 1), (None, 1)]
)
def test_the_first_dimension_is_the_batch_where_the_model_batches(shape, size):
    found = touched(spec("m", max_batch_size=16), shape=shape)
    assert sizes(found) == [(("m", "1"), size)]


def test_an_ensemble_reaches_its_steps_at_their_latest_or_given_version():
    old, new = spec("a", version="9"), spec("a", version="10", max_batch_size=4)
    ensemble = spec("e", ("a", ""), ("a", "9"), ("gone", ""))
    assert sizes(touched(ensemble, old, new, shape=(4, 3))) == [
        (("e", "1"), 1),
        (("a", "10"), 4),
        (("a", "9"), 1),
    ]


def test_an_ensemble_of_ensembles_reaches_all_of_them():
    inner = spec("inner", ("leaf", "1"))
    assert sizes(touched(spec("outer", ("inner", "")), inner, spec("leaf"))) == [
        (("outer", "1"), 1),
        (("inner", "1"), 1),
        (("leaf", "1"), 1),
    ]


@pytest.mark.parametrize(("times", "reached"), [(1, 9), (10, 256)])
def test_an_ensemble_that_says_it_contains_itself_ends(times, reached):
    assert len(touched(spec("e", *[("e", "")] * times))) == reached


def test_behind_a_cached_step_nothing_is_surely_asked():
    inner = ModelSpec("inner", "1", (), (), response_cache=True, steps=(("leaf", ""),))
    found = touched(spec("outer", ("inner", "")), inner, spec("leaf"))
    assert [(t.is_executed, t.is_success_certain) for t in found] == [
        (True, True),
        (False, True),
        (False, False),
    ]


def test_an_ensemble_books_a_failure_twice():
    found = touched(spec("e", ("leaf", "")), spec("leaf"))
    assert [share.fails_twice for share in found] == [True, False]


def test_declared_calls_are_followed_through_steps_calls_and_ensembles():
    calls = {"parent": {"child": 2}, "child": {"inner": 1}}
    ensemble, inner = spec("outer", ("parent", "")), spec("inner", ("leaf", ""))
    old = spec("child", version="2")
    others = [spec("parent"), old, spec("child", version="10"), inner, spec("leaf")]
    below = [("child", "10"), ("inner", "1"), ("leaf", "1")]
    found = touched(ensemble, *others, calls=calls)
    assert [t.key for t in found] == [("outer", "1"), ("parent", "1"), *below, *below]
    assert [t.is_success_certain for t in found] == [True] * 2 + [False] * 6
    assert [t.is_executed for t in found] == [True] * 2 + [False] * 6
    assert touched(spec("other"), *others, calls=calls)[1:] == []
