"""Work in a thread of its own goes on while its block lasts, and its failure is told."""

from __future__ import annotations

import threading
import time

import pytest
from waiting import patience, wait_until

from exporter.system.background import Background

# pytest tells of what ends a thread, as every program does; here it is wanted.
DIES = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnhandledThreadExceptionWarning"
)


class Counting(Background):
    def __init__(self) -> None:
        super().__init__(end_seconds=20)
        self.count = 0

    def _work(self) -> None:
        while not self._over.wait(0.001):
            self.count += 1


class Dying(Background):
    def __init__(self) -> None:
        super().__init__(end_seconds=20)

    def _work(self) -> None:
        raise ValueError("it has died")


class Hanging(Background):
    def __init__(self) -> None:
        super().__init__(end_seconds=0.1)
        self.let_go = threading.Event()

    def _work(self) -> None:
        self.let_go.wait(20)


def threads(kind: type[Background]) -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == kind.__name__]


def test_it_goes_on_while_the_block_lasts() -> None:
    with Counting() as counting:
        wait_until(lambda: counting.count >= 3)
        assert threads(Counting)
    assert threads(Counting) == []


@DIES
def test_what_ends_it_is_raised_where_the_block_ends() -> None:
    after = []
    with pytest.raises(ValueError, match="it has died"), Dying():
        after.append("the block goes on")
    assert after


@DIES
def test_an_error_of_the_block_goes_first() -> None:
    with pytest.raises(KeyError), Dying():
        raise KeyError


def test_one_that_hangs_is_left_at_the_deadline() -> None:
    started = time.monotonic()
    with Hanging() as hanging:
        pass
    assert time.monotonic() - started < patience(15)
    (left,) = threads(Hanging)
    assert left.daemon
    hanging.let_go.set()
    left.join(20)
    assert threads(Hanging) == []
