"""Bodies of strangers are parsed one at a time, with pauses."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from waiting import patience

from exporter.network.admission import Admission


def busy(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def test_all_listeners_share_one_slot_that_is_free_three_quarters_of_the_time():
    admission = Admission()
    spans = []

    def parse():
        started = time.monotonic()
        busy(0.1)
        spans.append((started, time.monotonic()))

    listeners = (admission.web, admission.tap, admission.grpc)
    with ThreadPoolExecutor(3) as threads:
        threads.map(lambda listener: listener.parsing.run(parse), listeners)
    spans.sort()
    for (_, ended), (started, _) in pairwise(spans):
        assert started - ended > 0.29


def test_short_bodies_do_not_wait_and_errors_pass_through():
    slot = Admission().tap.parsing
    started = time.monotonic()
    for _ in range(1000):
        assert slot.run(int, "7", base=8) == 7
    assert time.monotonic() - started < patience(60)
    with pytest.raises(ValueError, match="invalid literal"):
        slot.run(int, "no")


def test_a_pause_is_three_times_the_work():
    slot = Admission().tap.parsing
    before = time.thread_time()
    slot.run(busy, 0.1)
    taken = time.thread_time() - before
    assert slot._free_at - time.monotonic() <= 3 * taken
