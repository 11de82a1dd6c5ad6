"""Values that wait, shared by their senders."""

from __future__ import annotations

from exporter.features.traces.fair_buffer import FairBuffer


def filled(*sizes_by_sender, most_bytes=100):
    buffer = FairBuffer(10.0, most_bytes)
    for now, (sender, size) in enumerate(sizes_by_sender):
        buffer.put(f"{sender}{now}", sender, size, float(now), sender)
    return buffer


def test_above_the_limit_the_sender_that_holds_most_loses_its_oldest():
    buffer = filled(("a", 30), ("b", 40), ("b", 40), ("a", 20))
    assert list(buffer.overdue(3.0)) == [("b1", "b")]
    assert len(buffer) == 3


def test_two_senders_that_both_want_all_hold_a_half_each():
    buffer = FairBuffer[str](10.0, 100)
    for number in range(200):
        for sender in ("a", "b"):
            buffer.put(f"{sender}{number}", sender, 10, 0.0, sender)
            for _ in buffer.overdue(0.0):
                pass
    left = [buffer.get(f"{s}{n}") for s in ("a", "b") for n in range(200)]
    assert (left.count("a"), left.count("b")) == (5, 5)


def test_what_waited_too_long_goes_whoever_sent_it():
    buffer = filled(("a", 1), ("b", 1), ("a", 1))
    assert list(buffer.overdue(11.0)) == [("a0", "a"), ("b1", "b")]
    assert list(buffer.overdue(12.0)) == [("a2", "a")]
    assert len(buffer) == 0


def test_a_value_that_grows_counts_with_its_size_and_keeps_its_age():
    buffer = filled(("a", 10), ("b", 20))
    buffer.resize("a0", 95)
    assert list(buffer.overdue(1.0)) == [("a0", "a")]
    assert buffer.pop("b1") == "b"
    assert buffer.pop("b1") is None
    assert list(buffer.overdue(99.0)) == []
