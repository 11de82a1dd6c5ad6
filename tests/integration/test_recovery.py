"""One sidecar through everything a server can do to it; it recovers from each by itself."""

from __future__ import annotations

import re
import signal
import time

import pytest
from fake_triton import (
    INTERNAL,
    UNAVAILABLE,
    Body,
    Dripping,
    FakeModel,
    FakeTriton,
    Garbage,
    HalfAnswer,
    Hung,
    NotReady,
    ShortTensor,
)
from waiting import patience

PRODUCTION = "triton_requests_total"
PROTOCOLS = ("grpc", "http")


def named(behaviour) -> str:
    return re.sub(r"\W+", "-", repr(behaviour))[:30].strip("-")


def all_well(page) -> bool:
    """The server is up and a tensor goes through every model by every protocol."""
    return (
        page.value("triton_up") == page.value("triton_ready") == 1
        and page.values("triton_probe_success") == [1, 1, 1, 1]
        and set(page.values("triton_model_serving")) == {1}
        and page.label(PRODUCTION, "model")
        == page.label("triton_model_serving", "model")
    )


def others_are_well(page) -> bool:
    """Beside the model that answers badly, n is served and both count as ready."""
    is_served = page.value("triton_model_serving", model="n") == 1
    return is_served and set(page.values("triton_model_ready")) == {1}


def is_down(page) -> bool:
    return page.value("triton_up") == page.value("triton_ready") == 0


def is_lost(page) -> bool:
    """Nothing goes through, and nothing that was measured before is left."""
    return set(page.values("triton_probe_success")) == {0} and not (
        page.all(PRODUCTION) or page.all("triton_model_ready")
    )


def outcomes(page, outcome, **labels) -> float:
    return page.sum("triton_probe_total", outcome=outcome, **labels)


@pytest.mark.triton
def test_a_freeze_is_no_load_of_models_and_a_kill_is_one(
    playground, settings, start_sidecar, limits
):
    sidecar = start_sidecar(settings(playground))
    sidecar.wait(all_well)
    playground.triton.freeze()
    sidecar.wait(is_down, limits.notice, since=time.monotonic())
    page = sidecar.wait(is_lost, 2 * limits.recovery)
    assert is_down(page)
    # That an answer is late shows before it is given up.
    page = sidecar.wait(
        lambda p: all(outcomes(p, "timeout", protocol=each) for each in PROTOCOLS),
        limits.recovery,
    )
    for protocol in PROTOCOLS:
        assert outcomes(page, "unavailable", protocol=protocol) == 0
    playground.triton.thaw()
    page = sidecar.wait(all_well, limits.recovery)
    assert page.sum("triton_model_loads_total") == 0
    assert page.sum("triton_statistics_resets_total") == 0

    playground.triton.kill()
    sidecar.wait(is_down, limits.notice, since=time.monotonic())
    page = sidecar.wait(is_lost, 2 * limits.recovery)
    assert set(page.values("triton_model_serving")) == {0}
    for protocol in PROTOCOLS:
        assert outcomes(page, "unavailable", protocol=protocol) > 0
    playground.triton.start()
    sidecar.wait(
        lambda p: all_well(p) and set(p.values("triton_model_loads_total")) == {1},
        limits.recovery,
    )
    assert set(sidecar.settle().values("triton_model_loads_total")) == {1}


@pytest.mark.triton
def test_sigint_ends_it_in_time_while_a_look_through_probe_hangs(
    playground, settings, start_sidecar
):
    sidecar = start_sidecar(settings(playground, multi_target={"open": True}))
    sidecar.wait(all_well)
    playground.triton.freeze()
    with pytest.raises(TimeoutError):
        sidecar.get(
            f"/probe?target={playground.grpc}&http={playground.http}",
            timeout=0.3,
            x_prometheus_scrape_timeout_seconds="60",
        )
    code, seconds = sidecar.end(signal.SIGINT)
    playground.triton.thaw()
    assert code == 0
    assert seconds < patience(10)  # of that 5 for requests under way


@pytest.fixture(scope="module")
def fake():
    with FakeTriton([FakeModel("m"), FakeModel("n")]) as server:
        yield server


@pytest.fixture(scope="module")
def sidecar(fake, settings, tmp_path_factory, sidecar_process):
    """The one sidecar: it has to come through all of it, and to end well."""
    started = sidecar_process(settings(fake), tmp_path_factory.mktemp("sidecar"))
    started.wait_listening()
    yield started
    assert started.running
    code, _ = started.end()
    assert code == 0


@pytest.fixture
def well(fake, sidecar):
    """Before the test all is well; after it the server behaves again."""
    sidecar.wait(all_well)
    yield
    fake.behave()


# test_extension_points.py has the outcome of every bad answer.
BAD_ANSWERS = [
    (INTERNAL, {"model_error"}),
    (ShortTensor(), {"bad_output"}),
    (HalfAnswer(), {"bad_output", "unavailable", "model_error"}),
    (Hung(), {"timeout"}),
]


@pytest.mark.parametrize(
    ("behaviour", "expected"), BAD_ANSWERS, ids=[named(b) for b, _ in BAD_ANSWERS]
)
def test_a_model_that_answers_badly_costs_no_other(
    well, fake, sidecar, limits, behaviour, expected
):
    before = sidecar.page()
    fake.on("infer", model="m").reply(behaviour)
    sidecar.wait(
        lambda p: set(p.values("triton_probe_success", model="m")) == {0},
        limits.recovery,
    )

    def new(page, protocol):
        return {
            found["outcome"]
            for found, value in page.all(
                "triton_probe_total", model="m", protocol=protocol
            )
            if value > before.value("triton_probe_total", **found)
        } - {"ok", "late"}  # late: the sidecar could not run, and judges nothing

    # That an answer is late shows before it is given up.
    page = sidecar.wait(
        lambda p: all(new(p, protocol) for protocol in PROTOCOLS), limits.recovery
    )
    for protocol in PROTOCOLS:
        assert new(page, protocol) <= expected
    # An answer that is cut off ends the connection, and with it what else was under way
    # there; and a busy machine may be late with any model.
    sidecar.wait(
        lambda p: (
            others_are_well(p) and p.value("triton_model_serving", model="m") == 0
        ),
        limits.recovery,
    )

    fake.behave()
    sidecar.wait(all_well, limits.recovery)


@pytest.mark.parametrize("behaviour", [Garbage(), Hung(), UNAVAILABLE], ids=named)
def test_a_server_that_answers_nothing_well(well, fake, sidecar, limits, behaviour):
    success = "tritonwatch_collector_success"
    fake.on("any").reply(behaviour)
    sidecar.wait(
        lambda p: (
            is_lost(p) and is_down(p) and p.value(success, collector="statistics") == 0
        ),
        2 * limits.recovery,
    )
    fake.behave()
    sidecar.wait(all_well, limits.recovery)


def test_a_server_that_is_up_and_says_it_is_not_ready(well, fake, sidecar, limits):
    with fake.on("server_ready").reply(NotReady()):
        page = sidecar.wait(lambda p: p.value("triton_ready") == 0, limits.notice)
        assert page.value("triton_up") == 1
        assert set(page.values("triton_model_serving")) == {1}
    sidecar.wait(all_well, limits.recovery)


def test_a_server_that_does_not_tell_what_it_holds(well, fake, sidecar, limits):
    loads = sidecar.page().sum("triton_model_loads_total")
    with fake.on("repository_index").reply(INTERNAL):
        page = sidecar.wait(lambda p: not p.all("triton_model_ready"), limits.recovery)
        assert page.value("triton_up") == page.value("triton_ready") == 1
        assert page.value("tritonwatch_collector_success", collector="server") == 0
        # What was known is probed on.
        assert set(page.values("triton_model_serving")) == {1}
    page = sidecar.wait(
        lambda p: all_well(p) and p.all("triton_model_ready"), limits.recovery
    )
    assert page.value("tritonwatch_collector_success", collector="server") == 1
    assert page.sum("triton_model_loads_total") == loads


def test_a_connection_that_stands_still_is_given_up_for_a_new_one(
    well, fake, sidecar, limits
):
    # A byte a second: neither broken nor alive, as after a lost route.
    fake.on("any", protocol="grpc").reply(Dripping(1.0))
    sidecar.wait(is_down, limits.notice)
    fake.behave()
    sidecar.wait(all_well, limits.recovery + 2 * limits.interval)


def test_a_port_nobody_listens_on_for_a_while(well, fake, sidecar, limits):
    with fake.down():
        sidecar.wait(is_down, limits.notice)
    sidecar.wait(all_well, limits.recovery)


@pytest.mark.parametrize("behaviour", [Hung(), Body(b"\xff")], ids=named)
def test_statistics_that_cannot_be_had_cost_only_themselves(
    well, fake, sidecar, limits, behaviour
):
    with fake.on("statistics").reply(behaviour):
        page = sidecar.wait(lambda p: not p.all(PRODUCTION), limits.recovery)
        assert page.value("tritonwatch_collector_success", collector="statistics") == 0
        assert page.value("triton_up") == page.value("triton_ready") == 1
        assert page.values("triton_probe_success") == [1, 1, 1, 1]
    sidecar.wait(all_well, limits.recovery)


def test_a_model_that_is_listed_as_ready_and_cannot_be_read(
    well, fake, sidecar, limits
):
    fake.add(FakeModel("ghost"))
    fake.vanish("ghost")
    # Listed as ready; asked itself, it is not.
    page = sidecar.wait(
        lambda p: (
            p.value("triton_models_unreadable") == 1
            and p.value("triton_model_ready", model="ghost") == 0
            and p.value("triton_models_denying_readiness") == 1
        ),
        limits.recovery,
    )
    assert not page.all("triton_probe_total", model="ghost")
    fake.remove("ghost")
    sidecar.wait(
        lambda p: (
            p.value("triton_models_unreadable") == 0
            and not any(p.all(name, model="ghost") for name in p.series)
        ),
        limits.recovery,
    )
