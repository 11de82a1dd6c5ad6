"""Trace rates on a scripted Triton: set, followed, refused, put back."""

from __future__ import annotations

import contextlib
import json
import time

import pytest
from fake_triton import FakeModel, FakeTriton, Frozen, Status
from waiting import patience

from exporter.features.traces.trace_control import ControlSettings, TraceControl
from exporter.triton.grpc import GrpcClient

SAFE = "2.57.0"


class Controlled:
    """A control of one fake server, at a time of the test's choosing."""

    def __init__(self, fake, **changes):
        self.fake = fake
        self.client = GrpcClient(fake.grpc)
        self.now = 0.0
        self.settings = ControlSettings(
            **{
                "samples_per_minute": 60.0,
                "max_traces_per_second": 100.0,
                "force": False,
                "journal": None,
                "timeout_seconds": 2.0,
                **changes,
            }
        )
        self.control = self.new()

    def new(self):
        return TraceControl(
            self.client,
            self.settings,
            wanted=lambda name: name != "ignored",
            clock=lambda: self.now,
        )

    def step(self, seconds=10.0, **served):
        """So much later, after so many more requests to each model."""
        for model, requests in served.items():
            if requests:
                self.fake.served(model, requests)
        self.now += seconds
        self.control.step()

    def in_force(self, model):
        return self.client.trace_settings(model, timeout_seconds=2.0)


@pytest.fixture
def models():
    return [FakeModel("m"), FakeModel("quiet"), FakeModel("ignored")]


@pytest.fixture
def controlled(models):
    with FakeTriton(models, version=SAFE) as fake, contextlib.ExitStack() as stack:
        subject = Controlled(fake)
        stack.callback(subject.client.close)
        yield subject


def test_each_model_gets_the_rate_for_its_own_traffic(controlled):
    controlled.step()
    controlled.step(m=1000)
    assert controlled.control.rates == {"m": 101, "quiet": 1}
    assert controlled.in_force("m")["trace_rate"] == ("101",)
    assert controlled.in_force("m")["trace_level"] == ("TIMESTAMPS",)
    assert controlled.in_force("ignored")["trace_level"] == ("OFF",)
    assert controlled.in_force("")["trace_level"] == ("OFF",)


def test_a_buffer_without_end_gets_one(controlled):
    assert controlled.in_force("m")["log_frequency"] == ("0",)
    controlled.step()
    controlled.step(m=10)
    assert controlled.in_force("m")["log_frequency"] == ("5",)


def test_more_traffic_counts_at_once_and_less_after_a_minute(controlled):
    controlled.step()
    controlled.step(m=1000)
    controlled.step(m=5000)
    assert controlled.control.rates["m"] == 503
    controlled.step(m=100)
    assert controlled.control.rates["m"] == 503
    controlled.step(60.0, m=600)
    assert controlled.control.rates["m"] == 11


def test_a_little_more_or_less_changes_nothing_on_the_server(controlled):
    controlled.step()
    controlled.step(m=1000)
    controlled.fake.forget()
    for requests in (1100, 900, 1300, 800):
        controlled.step(100.0, m=requests * 10)
    changes = [r for r in controlled.fake.requests if r.settings]
    assert changes == []


def test_everything_is_put_back_as_it_was(controlled):
    own = {"trace_rate": ["77"], "log_frequency": ["9"]}
    controlled.client.update_trace_settings("m", own, timeout_seconds=2.0)
    names = ("m", "quiet", "ignored", "")
    before = {name: controlled.in_force(name) for name in names}
    controlled.step()
    controlled.step(m=1000)
    assert {name: controlled.in_force(name) for name in names} != before
    controlled.control.restore()
    assert {name: controlled.in_force(name) for name in names} == before
    # What was inherited is inherited again, not frozen at what it was.
    controlled.client.update_trace_settings(
        "", {"trace_rate": ["5"]}, timeout_seconds=2.0
    )
    assert controlled.in_force("quiet")["trace_rate"] == ("5",)


@pytest.mark.parametrize("version", ["2.51.0", "2.56.0", "unknown"])
def test_a_version_that_can_crash_is_left_alone_unless_forced(models, version):
    with FakeTriton(models, version=version) as fake:
        left_alone = Controlled(fake)
        left_alone.step()
        left_alone.step(m=1000)
        assert left_alone.control.rates == {}
        assert "server#7795" in left_alone.control.refusal
        assert all(not r.settings for r in fake.requests)
        forced = Controlled(fake, force=True)
        forced.step()
        forced.step(m=1000)
        assert forced.control.refusal is None
        assert forced.control.rates["m"] == 101


def test_a_server_without_a_place_for_traces_is_told_how_to_get_one(models):
    with FakeTriton(models, version=SAFE, trace_file="") as fake:
        subject = Controlled(fake)
        subject.step()
        subject.step(m=10)
        assert "--trace-config" in subject.control.refusal
        assert all(not r.settings for r in fake.requests)


def test_a_server_that_is_away_is_a_refusal_until_it_is_back(controlled):
    controlled.step()
    with controlled.fake.down():
        controlled.step()
        assert "UNAVAILABLE" in controlled.control.refusal
    deadline = time.monotonic() + patience()
    while controlled.control.refusal is not None and time.monotonic() < deadline:
        time.sleep(0.05)
        controlled.step(m=100)
    assert controlled.control.refusal is None
    assert 1 < controlled.control.rates["m"] <= 11


def test_a_server_that_was_restarted_is_set_anew_and_restored_to_the_first(controlled):
    controlled.step()
    controlled.step(m=1000)
    controlled.fake.reset_counters()
    clear = {"trace_rate": [], "trace_level": [], "log_frequency": []}
    for model in ("m", "quiet"):
        controlled.client.update_trace_settings(model, clear, timeout_seconds=2.0)
    assert controlled.in_force("m")["trace_level"] == ("OFF",)
    controlled.step(m=10)
    controlled.step(m=1000)
    assert controlled.in_force("m")["trace_rate"] == ("101",)
    controlled.control.restore()
    assert controlled.in_force("m")["trace_level"] == ("OFF",)


def test_a_change_that_is_refused_is_said_and_tried_again(controlled):
    controlled.step()
    refused = Status("INVALID_ARGUMENT", 400, "no")
    controlled.fake.on("trace_setting", model="m").reply(refused)
    controlled.step(m=1000)
    assert "InvalidRequestError" in controlled.control.refusal
    controlled.fake.behave()
    controlled.step(m=1000)
    assert controlled.control.refusal is None
    assert controlled.control.rates["m"] == 101


def test_frozen_statistics_trace_every_request_of_nobody_else(controlled):
    controlled.step()
    controlled.fake.on("statistics").reply(Frozen())
    controlled.step(m=1000)
    assert set(controlled.control.rates) == {"m", "quiet"}


def test_the_journal_undoes_what_a_killed_process_left(models, tmp_path):
    journal = tmp_path / "journal.json"
    with FakeTriton(models, version=SAFE) as fake:
        killed = Controlled(fake, journal=journal)
        own = {"trace_rate": ["77"]}
        killed.client.update_trace_settings("m", own, timeout_seconds=2.0)
        before = killed.in_force("m")
        killed.step()
        killed.step(m=1000)
        assert killed.in_force("m") != before
        assert set(json.loads(journal.read_text("utf-8"))) == {"m", "quiet"}
        following = Controlled(fake, journal=journal)
        following.step()
        assert following.in_force("m") == before
        assert not journal.exists()


def test_a_journal_outlives_a_process_that_never_met_its_server(models, tmp_path):
    journal = tmp_path / "journal.json"
    text = json.dumps({"m": {"trace_rate": ["77"]}})
    journal.write_text(text, "utf-8")
    with FakeTriton(models, version=SAFE) as fake:
        with fake.down():
            subject = Controlled(fake, journal=journal)
            subject.control.restore()
            subject.step()
            subject.control.restore()
            assert journal.read_text("utf-8") == text
        late = Controlled(fake, journal=journal)
        late.step()
        assert late.in_force("m")["trace_rate"] == ("77",)
        assert not journal.exists()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", '{"m": 5}', '{"m": {"trace_rate": 5}}', "\x00"]
)
def test_a_journal_that_cannot_be_understood_is_no_harm(models, tmp_path, text):
    journal = tmp_path / "journal.json"
    journal.write_text(text, "utf-8")
    with FakeTriton(models, version=SAFE) as fake:
        subject = Controlled(fake, journal=journal)
        subject.step()
        subject.step(m=1000)
        assert subject.control.rates["m"] == 101
        subject.control.restore()
        assert not journal.exists()


def test_what_a_vanished_model_needs_does_not_hold_up_the_others(controlled):
    controlled.step()
    controlled.step(m=1000, quiet=1000)
    refused = Status("INVALID_ARGUMENT", 400, "unknown model")
    controlled.fake.on("trace_setting", model="m").reply(refused)
    controlled.control.restore()
    assert controlled.in_force("quiet")["trace_level"] == ("OFF",)
