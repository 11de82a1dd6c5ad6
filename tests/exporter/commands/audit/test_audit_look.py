"""The whole audit against a server that can be made to do what a real one cannot."""

from __future__ import annotations

import math
import threading
import time

import pytest
from fake_triton import (
    PYTHON_BACKEND_ERROR,
    UNAVAILABLE,
    Body,
    FakeModel,
    FakeTensor,
    FakeTriton,
    Filled,
    Garbage,
    Hung,
    Slow,
    Timings,
    many,
)
from waiting import patience

from exporter.commands.audit.gather import LONGEST_CALL_SECONDS

FIXED = "2.60.0"
SLACK_SECONDS = 4.0
"""What a busy machine may add to a bound; a missing bound would add far more."""


@pytest.fixture
def fake():
    with FakeTriton([FakeModel("m")], version=FIXED) as server:
        yield server


class production(threading.Thread):  # noqa: N801 - used like a function
    """Counts requests steadily for as long as its block lasts."""

    def __init__(self, fake, model, per_tick=5, **counted):
        super().__init__(daemon=True)
        self._served = lambda: fake.served(model, per_tick, **counted)
        self._end = threading.Event()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self.join(10)

    def run(self):
        while not self._end.wait(0.02):
            self._served()


def test_shares_are_what_the_server_spent_in_the_window(audit):
    timings = Timings(
        queue_ns=1_000_000,
        compute_input_ns=500_000,
        compute_infer_ns=2_000_000,
        compute_output_ns=500_000,
    )
    with FakeTriton([FakeModel("m", timings=timings)], version=FIXED) as fake:
        fake.served("m", 100_000)
        with production(fake, "m"):
            seen = audit(fake)
    (share,) = seen.report.time_shares
    assert share.source == "window"
    assert 10 <= share.requests < 100_000
    assert share.queue == pytest.approx(1e-3)
    assert share.compute_infer == pytest.approx(2e-3)
    assert share.server == pytest.approx(4e-3)
    assert share.other == 0


def test_without_traffic_the_shares_are_of_all_time_and_it_is_said(fake, audit):
    fake.served("m", 500)
    seen = audit(fake)
    (share,) = seen.report.time_shares
    assert (share.source, share.requests) == ("cumulative", 500)
    assert seen.one("no-production-traffic").severity == "info"


def test_a_dead_backend_process_is_named_where_the_server_is_not_ready(audit):
    with FakeTriton([FakeModel("m"), FakeModel("n")], version="2.70.0") as fake:
        fake.kill_stub("n")
        found = audit(fake).one("server-not-ready")
    shown = {each.name: each.value for each in found.evidence}
    assert (shown["loaded, not ready"], shown["which"]) == (1, "n v1")


def test_our_own_probes_are_in_no_share(fake, audit):
    seen = audit(fake)
    assert fake.received("infer") > 10
    assert seen.report.time_shares == ()
    assert seen.evidence.models[0].window.success.count == 0


def test_the_network_is_the_round_trip_of_an_empty_call(fake, audit):
    fake.served("m", 500)
    fake.on("server_live").reply(Slow(0.03, phase="network"))
    (share,) = audit(fake, 4.0).report.time_shares
    assert share.network >= 0.03


@pytest.mark.parametrize(
    "behaviour", [UNAVAILABLE, Garbage(), Body(b"<html>")], ids=str
)
def test_a_page_that_cannot_be_read_is_a_warning(fake, audit, behaviour):
    fake.on("metrics").reply(behaviour)
    seen = audit(fake)
    assert seen.one("metrics-off").severity == "warning"
    assert "models-answer" in seen.ids("ok")


def test_nan_outputs_are_critical_though_the_server_says_ready(fake, audit):
    fake.add(FakeModel("well"))
    fake.on("infer", model="m").reply(Filled(math.nan))
    seen = audit(fake)
    answering = {m.name: m.value for m in seen.one("models-answer").evidence}
    assert (answering["models asked"], answering["answered every time"]) == (2, 1)
    found = seen.one("ready-but-failing")
    assert found.severity == "critical"
    assert (found.model, found.version) == ("m", "1")
    assert any("NaN" in str(m.value) for m in found.evidence)


def test_a_model_error_counted_as_success_is_seen_all_the_same(fake, audit):
    fake.on("infer").reply(PYTHON_BACKEND_ERROR)
    seen = audit(fake, 3.0)
    assert seen.one("ready-but-failing").severity == "critical"
    assert not seen.all("models-answer")
    # Three times by each protocol say enough.
    assert fake.received("infer") == 6


def test_an_answer_that_only_the_end_of_the_audit_cuts_off_is_no_failure(fake, audit):
    fake.on("infer").reply(Slow(0.3))
    # A limit of its own that no busy machine reaches: only the audit's end cuts one off.
    seen = audit(fake, 3.0, probe={"timeout_seconds": 5.0})
    assert {v.outcome for a in seen.evidence.answers for v in a.verdicts} == {"ok"}
    assert "fails-sometimes" not in seen.ids()


def test_overrides_of_the_config_are_used(audit):
    model = FakeModel("m", inputs=(FakeTensor("INPUT0", shape=(-1,)),))
    with FakeTriton([model], version=FIXED) as fake:
        audit(
            fake, probe={"overrides": {"m": {"inputs": {"INPUT0": {"shape": [2, 7]}}}}}
        )
        shapes = {r.inputs[0].shape for r in fake.requests if r.operation == "infer"}
    assert shapes == {(2, 7)}


def test_a_model_that_vanished_is_listed_and_unreadable(audit):
    with FakeTriton([FakeModel("m"), FakeModel("n")], version=FIXED) as fake:
        fake.vanish("n")
        seen = audit(fake)
    assert seen.one("ready-but-unreadable").model == "n"


def test_a_hung_server_ends_the_look_by_its_deadline(fake, audit):
    fake.on("any").reply(Hung())
    began = time.monotonic()
    seen = audit(fake, 2.0)
    took = time.monotonic() - began
    assert took < seen.seconds + 2 * LONGEST_CALL_SECONDS + patience(SLACK_SECONDS)
    assert seen.ids() == {"server-unreachable"}


@pytest.mark.parametrize(
    "operation",
    [
        *("statistics", "metrics", "infer", "trace_setting", "server_ready"),
        *("model_config", "model_metadata"),
    ],
)
def test_one_operation_that_hangs_costs_only_what_it_tells(fake, audit, operation):
    fake.on(operation).reply(Hung())
    began = time.monotonic()
    seen = audit(fake, 2.0)
    took = time.monotonic() - began
    assert took < seen.seconds + 2 * LONGEST_CALL_SECONDS + patience(SLACK_SECONDS)
    told = {
        "statistics": "statistics-unreadable",
        "metrics": "metrics-off",
        "infer": "ready-but-failing",
        "trace_setting": "tracing-unknown",
        "model_config": "not-asked",
        "model_metadata": "not-asked",
        "server_ready": "server-not-ready",
    }[operation]
    assert told in seen.ids()
    # What is not answered is refused by nobody.
    assert "ready-but-unreadable" not in seen.ids()
    if operation == "statistics":
        # Who does not answer is not asked again.
        assert fake.received("statistics") == 1


def test_five_hundred_models_are_bounded_in_time_and_what_was_left_out_is_said(audit):
    with FakeTriton(many(500), version=FIXED) as fake:
        began = time.monotonic()
        # A rate at which no patience of this test is enough for all.
        seen = audit(fake, 3.0, probe={"max_requests_per_second": 10})
        took = time.monotonic() - began
        assert fake.max_concurrent <= 1
    assert took < seen.seconds + 4 * LONGEST_CALL_SECONDS + patience(SLACK_SECONDS)
    left_out = {m.name: m.value for m in seen.one("not-asked").evidence}
    ways = 2 * (500 - left_out["not read"])
    assert seen.report.models == 500 - left_out["not read"]
    assert len(seen.evidence.answers) + left_out["not asked"] == ways


def test_it_sends_one_request_at_a_time_and_keeps_to_the_configured_rate(fake, audit):
    seen = audit(fake, 3.0, probe={"max_requests_per_second": 5})
    asked = sum(len(answers.verdicts) for answers in seen.evidence.answers)
    assert fake.max_concurrent == 1
    # A third of the duration is for probes.
    assert 2 <= asked == fake.received("infer") <= seen.seconds * 0.35 * 5 + 1


def test_it_changes_nothing_on_the_server(fake, audit):
    audit(fake)
    for operation in ("repository_load", "repository_unload", "trace_update"):
        assert fake.received(operation) == 0


def test_the_models_of_the_config_are_the_only_ones_looked_at(audit):
    with FakeTriton([FakeModel("yes"), FakeModel("no")], version=FIXED) as fake:
        for name in ("yes", "no"):
            fake.served(name, 50)
        seen = audit(fake, models={"include": ["yes"]})
        assert fake.received("infer", model="no") == 0
    assert {s.model for s in seen.report.time_shares} == {"yes"}


def test_progress_is_told_while_it_looks(fake, audit):
    told = audit(fake, 4.0).told
    assert [line.split()[0] for line in told] == ["reading", "1", "sending"]
