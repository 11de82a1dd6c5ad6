"""All attacks at once on a sidecar in as much memory as the shipped deployment has."""

from __future__ import annotations

import contextlib
import os
import statistics

import pytest
from attacked_sidecars import attacked
from attacks import ATTACKS
from control_groups import NoGroupError, limited
from honest_clients import HonestClients
from run_all import (
    IN_TIME_SECONDS,
    LIMIT_BYTES,
    POSTS_SHARE,
    RESIDENT_BYTES,
    chosen,
    report,
    reserved_core,
    spell,
)
from sidecars import Page
from waiting import wait_until

from pages import page_text

SECONDS = 20.0
QUIET_SECONDS = 3.0
MOST_RATIO = 50
"""Limit of a scrape's time over the median before, if that is over a second: the
load average counts the attackers, and would allow ten times as long."""
MOST_LATE = 1
"""Other work on the machine delays a single scrape by seconds, whether there are attacks or
not. `make attack` on a quiet machine wants every one in time."""
GIVEN_BACK_BYTES = 40e6
"""Within so much of before: the first messages by each protocol load what stays."""


@pytest.fixture
def core():
    """A core for the attackers alone, or None where there is only one."""
    before = os.sched_getaffinity(0)
    try:
        yield reserved_core() if len(before) > 1 else None
    finally:
        os.sched_setaffinity(0, before)


@pytest.fixture
def group():
    """A control group, or None where none can be made: the rest is tested all the same."""
    with contextlib.ExitStack() as stack:
        try:
            yield stack.enter_context(limited(LIMIT_BYTES))
        except NoGroupError:
            yield None


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "mTLS"])
def test_all_attacks_at_once_keep_no_scrape_out(tls, group, core, tmp_path) -> None:
    within = group.within if group is not None else ()
    with attacked(tmp_path, tls=tls, within=within) as sidecar:
        clients = HonestClients(sidecar.target, sidecar.reader)
        wait_until(lambda: b"triton_model_serving{" in sidecar.reader.scrape())
        quiet = spell(sidecar, clients, (), QUIET_SECONDS)
        before = sidecar.resident_bytes
        if group is not None:
            page = Page(sidecar.reader.scrape())
            limit = page.value("tritonwatch_admission_memory_limit_bytes")
            assert limit == LIMIT_BYTES * 3 / 4
        stormy = spell(sidecar, clients, chosen(sidecar.target, ""), SECONDS, core)
        shown = page_text.render(report({sidecar.name: [quiet, stormy]}, ()))
        tallies = stormy.seen.tallies
        usual = statistics.median(quiet.seen.tallies["scrape"].seconds)
        assert stormy.tried > 10 * len(ATTACKS), shown
        assert stormy.let_through == 0, shown
        limit = max(IN_TIME_SECONDS, MOST_RATIO * usual)
        scrapes = tallies["scrape"]
        late = (1 - scrapes.share(limit)) * scrapes.tried
        assert round(late) <= MOST_LATE, (limit, shown)
        # On a busy machine few are made, and one may be ended before it is read.
        for tally in tallies.values():
            most = max(1, (1 - POSTS_SHARE) * tally.tried)
            assert tally.failures.total() <= most, shown
        # A call that waits in a queue behind a flood does not fail: it lasts.
        assert tallies["gRPC"].tried > SECONDS / 2, shown
        assert stormy.seen.not_serving == 0, shown
        assert stormy.seen.resident_bytes < RESIDENT_BYTES, shown
        wait_until(
            lambda: sidecar.resident_bytes < before + GIVEN_BACK_BYTES,
            lambda: f"{before:.0f}, now {sidecar.resident_bytes:.0f}\n{shown}",
        )
        assert "level=error" not in sidecar.process.log
    if group is None:
        pytest.skip("no control group with a limit of memory can be made here")
    assert group.kills == 0
