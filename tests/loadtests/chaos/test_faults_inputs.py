"""Bad requests beside good ones, on a real Triton."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fault_cycles import in_effect, recorded, undone
from waiting import wait_until

from loadtests.chaos.faults import FaultFailedError, FaultRefusedError
from loadtests.chaos.faults.bad_requests import CorruptInputs, OversizedInputs, tally_of
from loadtests.chaos.primitives.process_refs import started_with


@pytest.mark.parametrize(
    "fault",
    [
        CorruptInputs(model="double", requests_per_second=200),
        OversizedInputs(model="sleepy", megabytes=4, requests_per_second=20),
    ],
    ids=["corrupt", "oversized"],
)
def test_bad_requests_are_refused_and_good_ones_answered(site, client, fault) -> None:
    server = site.server()
    with in_effect(fault, site) as record:
        wait_until(lambda: tally_of(record)["refused"] > 10, "ten are refused")
        assert client.double() == "right"
        assert client.sleepy() == "right"
        tally = tally_of(record)
    assert (tally["accepted"], tally["unanswered"]) == (0, 0)
    assert tally_of(record)["refused"] == 0
    assert site.server() == server
    client.serves()


def test_an_oversized_request_is_not_held_by_its_sender(site, client) -> None:
    with in_effect(OversizedInputs(model="double", megabytes=256), site) as record:
        (sender,) = started_with(record["token"])
        status = Path(f"/proc/{sender.pid}/status").read_text()
        (peak,) = re.findall(r"VmHWM:\s*(\d+) kB", status)
        assert int(peak) << 10 < record["megabytes"] << 20
        assert tally_of(record)["accepted"] == 0


def test_corrupt_requests_that_are_taken_for_right_are_told(site) -> None:
    fault = CorruptInputs(model="double")
    record = recorded(fault, site)
    # No server at hand takes them; this is what the sender would have written.
    Path(record["tally"]).write_text('{"refused": 5, "accepted": 2}')
    assert "2 of them were answered as if they were right" in fault.missing(record)
    undone(fault, record)


def test_a_sender_that_gets_no_answer_has_failed(site, client) -> None:
    fault = CorruptInputs(model="double")
    record = recorded(fault, site)
    site.triton.kill()
    with pytest.raises(
        FaultFailedError, match=r"nobody answers|did not answer|refused"
    ):
        fault.inject(record)
    undone(fault, record)


def test_a_model_that_is_not_loaded_is_refused(site) -> None:
    for fault in (CorruptInputs(model="x"), OversizedInputs(model="x")):
        with pytest.raises(FaultRefusedError, match=r"it has \['double', 'sleepy'\]"):
            fault.require(site)
