"""Triton away, killed, frozen, lying: the sidecar stays, says so, and recovers by itself."""

from __future__ import annotations

import os
import signal
import time
import urllib.request

import pytest
from fake_triton import (
    HOSTILE_NAMES,
    EmptyTensor,
    FakeModel,
    FakeTriton,
    Filled,
    Garbage,
    HalfAnswer,
    Hung,
    Slow,
    WrongDtype,
    WrongShape,
    many,
)

pytestmark = pytest.mark.triton


def up(page) -> bool:
    return page.value("triton_up") == 1


def down(page) -> bool:
    return page.value("triton_up") == 0 and page.value("triton_ready") == 0


def serving(page) -> bool:
    values = page.values("triton_model_serving")
    return bool(values) and min(values) == 1


def outcome_rises(sidecar, outcome: str, before: float):
    return lambda page: page.sum("triton_probe_total", outcome=outcome) > before


def test_a_server_that_is_not_there_yet_is_down_until_it_comes(
    playground, settings, start_sidecar, limits
) -> None:
    triton = playground.triton
    triton.kill()
    sidecar = start_sidecar(settings(playground))
    page = sidecar.wait(down, limits.notice)
    assert not page.all("triton_model_ready"), "nobody knows of any model"
    assert not page.all("triton_server_info")
    assert sidecar.get("/-/ready").status == 200, "ready does not depend on Triton"
    triton.start()
    since = time.monotonic()
    sidecar.wait(up, limits.recovery, since=since)


def test_a_killed_server_is_noticed_and_its_restart_on_the_same_port_too(
    playground, settings, start_sidecar, limits
) -> None:
    sidecar = start_sidecar(settings(playground))
    sidecar.wait(serving)
    before = sidecar.page().sum("triton_probe_total", outcome="unavailable")
    playground.triton.kill()
    killed = time.monotonic()
    sidecar.wait(down, limits.notice, since=killed)
    sidecar.wait(
        outcome_rises(sidecar, "unavailable", before), limits.recovery, since=killed
    )
    # Each model by its own probe: on a busy machine one is asked later than the other.
    sidecar.wait(
        lambda p: (
            not p.all("triton_model_ready")
            and max(p.values("triton_model_serving")) == 0
        ),
        limits.recovery,
    )
    # Statistics that cannot be read any more disappear; they do not freeze.
    sidecar.wait(lambda p: not p.all("triton_requests_total"), limits.recovery + 2)
    playground.triton.start()
    for model in ("double", "sleepy"):
        if playground.states().get(model) != "READY":
            playground.model(model, "load")
    since = time.monotonic()
    sidecar.wait(lambda p: up(p) and serving(p), limits.recovery + 1, since=since)
    assert sidecar.running


def test_a_frozen_server_is_down_the_scrape_is_not_and_it_thaws_by_itself(
    playground, settings, start_sidecar, limits
) -> None:
    sidecar = start_sidecar(settings(playground))
    sidecar.wait(serving)
    before = sidecar.page().sum("triton_probe_total", outcome="timeout")
    playground.triton.freeze()
    frozen = time.monotonic()
    try:
        sidecar.wait(down, limits.notice, since=frozen)
        sidecar.wait(
            outcome_rises(sidecar, "timeout", before), limits.recovery, since=frozen
        )
        assert sidecar.get("/metrics").status == 200
    finally:
        playground.triton.thaw()
    thawed = time.monotonic()
    sidecar.wait(lambda p: up(p) and serving(p), limits.recovery, since=thawed)


def test_a_dead_backend_is_seen_while_triton_calls_everything_ready(
    playground, settings, start_sidecar, limits
) -> None:
    sidecar = start_sidecar(settings(playground))
    sidecar.wait(serving)
    for pid in playground.triton.stub_pids():
        os.kill(pid, signal.SIGKILL)
    killed = time.monotonic()
    page = sidecar.wait(
        lambda p: p.values("triton_model_serving") == [0, 0],
        limits.recovery,
        since=killed,
    )
    assert set(page.values("triton_model_ready")) == {1}
    assert page.value("triton_ready") == 1
    # What it is comes with the answer, which is later than that it is late.
    sidecar.wait(
        lambda p: p.sum("triton_probe_total", outcome="model_error") > 0,
        limits.recovery,
        since=killed,
    )
    # A load alone repairs nothing; after an unload, which hangs, it does.
    for model in ("double", "sleepy"):
        for action in ("unload", "load"):
            url = f"http://{playground.http}/v2/repository/models/{model}/{action}"
            urllib.request.urlopen(url, b"{}", timeout=15).close()
    sidecar.wait(serving, limits.recovery + 1)


LIES = {
    "garbage": (Garbage(), {"bad_output", "unavailable", "model_error"}),
    "half an answer": (HalfAnswer(), {"bad_output", "unavailable", "model_error"}),
    "hung": (Hung(), {"timeout"}),
    "slow": (Slow(0.9), {"timeout"}),
    "wrong dtype": (WrongDtype(), {"bad_output"}),
    "wrong shape": (WrongShape(), {"bad_output"}),
    "empty": (EmptyTensor(), {"bad_output"}),
    "NaN": (Filled(float("nan")), {"bad_output"}),
    "Inf": (Filled(float("inf")), {"bad_output"}),
}


@pytest.mark.parametrize("lie", LIES, ids=str)
def test_an_answer_that_is_none_has_its_outcome_and_heals(
    lie, settings, start_sidecar, limits
) -> None:
    behaviour, outcomes = LIES[lie]
    with FakeTriton([FakeModel("m")]) as fake:
        sidecar = start_sidecar(settings(fake))
        sidecar.wait(serving)
        rule = fake.on("infer").reply(behaviour)
        told = time.monotonic()
        page = sidecar.wait(
            lambda p: p.values("triton_model_serving") == [0],
            limits.recovery,
            since=told,
        )
        assert page.value("triton_model_ready") == 1
        page = sidecar.wait(
            lambda p: all(
                sum(
                    p.value("triton_probe_total", outcome=o, protocol=protocol) or 0
                    for o in outcomes
                )
                > 0
                for protocol in ("grpc", "http")
            ),
            limits.recovery + 1,
        )
        rule.remove()
        sidecar.wait(serving, limits.recovery + 1)


@pytest.mark.parametrize("behaviour", [Garbage(), Hung()], ids=str)
def test_a_server_that_answers_nothing_sensible_is_down_and_heals(
    behaviour, settings, start_sidecar, limits
) -> None:
    with FakeTriton([FakeModel("m")]) as fake:
        sidecar = start_sidecar(settings(fake))
        sidecar.wait(serving)
        rule = fake.on("any").reply(behaviour)
        sidecar.wait(down, limits.notice + 1)
        rule.remove()
        sidecar.wait(lambda p: up(p) and serving(p), limits.recovery + 1)
        assert sidecar.running


def test_a_model_that_disappears_between_two_calls_costs_only_itself(
    settings, start_sidecar, limits
) -> None:
    with FakeTriton([FakeModel("stays"), FakeModel("goes")]) as fake:
        sidecar = start_sidecar(settings(fake))
        sidecar.wait(lambda p: len(p.all("triton_model_serving")) == 2)
        fake.vanish("goes")
        sidecar.wait(
            lambda p: (
                p.label("triton_model_serving", "model") == {"stays"}
                or p.value("triton_model_serving", model="goes") == 0
            ),
            limits.recovery,
        )
        page = sidecar.page()
        assert page.value("triton_model_serving", model="stays") == 1
        assert page.value("tritonwatch_collector_success", collector="server") == 1


@pytest.mark.slow
def test_five_hundred_models_are_found_and_probed_within_the_rate(
    settings, start_sidecar
) -> None:
    with FakeTriton(many(500)) as fake:
        config = settings(fake, probe={"max_requests_per_second": 50})
        config["collectors"][0] |= {"deadline_seconds": 4}
        config["collectors"][1] |= {"deadline_seconds": 4, "timeout_seconds": 2}
        sidecar = start_sidecar(config)
        sidecar.wait(lambda p: len(p.all("triton_model_ready")) == 500, 20)
        page = sidecar.wait(
            lambda p: p.value("triton_probe_interval_seconds") == 20, 40
        )
        fake.forget()
        started = time.monotonic()
        time.sleep(5)
        took = time.monotonic() - started
        assert fake.received("infer") <= 50 * took * 1.1 + 8
        assert page.value("tritonwatch_collector_success", collector="server") == 1


def test_statistics_that_go_backwards_never_make_a_counter_fall(
    settings, start_sidecar
) -> None:
    with FakeTriton([FakeModel("m")]) as fake:
        sidecar = start_sidecar(settings(fake, probes=[]))
        sidecar.settle()
        fake.served("m", 100)
        page = sidecar.wait(
            lambda p: p.value("triton_requests_total", outcome="success") == 100
        )
        fake.reset_counters()
        fake.served("m", 7)
        page = sidecar.wait(lambda p: p.sum("triton_statistics_resets_total") == 1)
        assert page.value("triton_requests_total", outcome="success") == 107


def test_hostile_model_names_stay_labels(settings, start_sidecar) -> None:
    with FakeTriton([FakeModel(name) for name in HOSTILE_NAMES]) as fake:
        sidecar = start_sidecar(settings(fake))
        page = sidecar.wait(
            lambda p: len(p.all("triton_model_serving")) == len(HOSTILE_NAMES), 20
        )
        assert page.label("triton_model_serving", "model") == set(HOSTILE_NAMES)
        # The page is the same for everybody; names reach it as JSON alone.
        document = sidecar.get("/").text
        assert not any(name in document for name in HOSTILE_NAMES)
