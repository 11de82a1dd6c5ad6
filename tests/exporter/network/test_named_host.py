"""When a name stands for another server."""

from __future__ import annotations

import threading

import pytest

from exporter.network.addresses import NamedHost


class Names:
    """A resolver whose answers a test writes: addresses, or None for an error."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = 0

    def __call__(self, host):
        assert host == "triton.test"
        self.asked += 1
        answer = self.answers.pop(0)
        if answer is None:
            raise OSError("no such name")
        return frozenset(answer)


@pytest.mark.parametrize(
    ("answers", "moves"),
    [
        (["a", "a"], [False, False]),
        (["a", "b", "b", "a"], [False, True, False, True]),
        (["a", None, "a"], [False, False, False]),
        (["a", None, "b"], [False, False, True]),
        ([None, "a"], [False, False]),
        # In turn: the old and the new pod of a rolling update.
        (["a", "ab", "b"], [False, True, False]),
        # A resolver that gets no answer for one of the two families.
        (["ab", "a", "ab"], [False, False, False]),
    ],
)
def test_a_name_has_moved_when_it_has_an_address_that_it_did_not_have(answers, moves):
    names = Names(*answers)
    host = NamedHost("triton.test:8001", names)
    assert [host.has_moved() for _ in answers] == moves


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1", "[::1]"])
def test_an_address_is_not_asked_for(host) -> None:
    names = Names()
    assert not NamedHost(f"{host}:8001", names).has_moved()
    assert names.asked == 0


def test_a_resolver_that_hangs_shows_nothing_and_is_asked_once_at_a_time() -> None:
    over = threading.Event()
    asked = []

    def hangs(host):
        asked.append(host)
        over.wait(60)
        return frozenset("a")

    host = NamedHost("triton.test:8001", hangs)
    assert [host.has_moved() for _ in range(2)] == [False, False]
    assert len(asked) == 1
    over.set()
    assert not host.has_moved()
    assert host.known == {"a"}


def test_a_name_that_cannot_be_one_has_not_moved() -> None:
    assert not NamedHost(f"{'x' * 300}:8001").has_moved()
