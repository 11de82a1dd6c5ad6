"""FakeTriton: a scripted Triton on real sockets, for what a real one cannot be made to do.

Start with `FakeTriton`, describe its repository with `FakeModel` and `FakeTensor`, and
script it with the behaviours named here.
"""

from __future__ import annotations

from exporter.testing.behaviours import (
    INTERNAL,
    INVALID_ARGUMENT,
    NOT_FOUND,
    PYTHON_BACKEND_ERROR,
    QUEUE_FULL,
    RESOURCE_EXHAUSTED,
    UNAVAILABLE,
    Behaviour,
    Body,
    Dripping,
    Dropped,
    EmptyTensor,
    Filled,
    Frozen,
    Garbage,
    HalfAnswer,
    Hung,
    MissingOutput,
    NotReady,
    Shifted,
    ShortTensor,
    Slow,
    Status,
    WrongDtype,
    WrongShape,
    Zeroed,
)
from exporter.testing.calls import Limits
from exporter.testing.fake_triton import FakeTriton
from exporter.testing.journal import Concurrency, ReceivedRequest, ReceivedTensor
from exporter.testing.models import (
    HOSTILE_NAMES,
    FakeModel,
    FakeTensor,
    Timings,
    many,
)
from exporter.testing.script import On, Rule

__all__ = [
    "HOSTILE_NAMES",
    "INTERNAL",
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "PYTHON_BACKEND_ERROR",
    "QUEUE_FULL",
    "RESOURCE_EXHAUSTED",
    "UNAVAILABLE",
    "Behaviour",
    "Body",
    "Concurrency",
    "Dripping",
    "Dropped",
    "EmptyTensor",
    "FakeModel",
    "FakeTensor",
    "FakeTriton",
    "Filled",
    "Frozen",
    "Garbage",
    "HalfAnswer",
    "Hung",
    "Limits",
    "MissingOutput",
    "NotReady",
    "On",
    "ReceivedRequest",
    "ReceivedTensor",
    "Rule",
    "Shifted",
    "ShortTensor",
    "Slow",
    "Status",
    "Timings",
    "WrongDtype",
    "WrongShape",
    "Zeroed",
    "many",
]
