"""Scripted: models that hang, and a sidecar that is stopped while models answer."""

from __future__ import annotations

import signal
import time

from fake_triton import FakeModel, FakeTriton, Hung, Slow, many

MODELS, HANGING = 60, 50
"""More hang than there are threads for probes."""
INTERVAL_SECONDS = 5.0
REQUESTS_PER_SECOND = 20.0
# What a busy machine may add to an interval.
SLACK_SECONDS = 10.0


def test_models_that_answer_are_judged_within_two_intervals(
    start_sidecar, settings
) -> None:
    every = many(MODELS)
    interval = 2 * MODELS / REQUESTS_PER_SECOND
    assert interval > INTERVAL_SECONDS
    well = [model.name for model in every[HANGING:]]
    with FakeTriton(list(every)) as fake:
        for model in every[:HANGING]:
            fake.on("infer", model=model.name).reply(Hung())
        probe = {
            "interval_seconds": INTERVAL_SECONDS,
            "timeout_seconds": 2.0,
            "linger_seconds": 0.5,
            "max_requests_per_second": REQUESTS_PER_SECOND,
        }
        sidecar = start_sidecar(settings(fake, probe=probe))

        def asked(page, name):
            return page.sum("triton_probe_total", model=name, outcome="ok")

        def judged(page):
            return all(page.value("triton_model_serving", model=n) == 1 for n in well)

        page = sidecar.wait(
            lambda page: len(page.all("triton_model_ready")) == MODELS, 60
        )
        # Reading the signatures of all models comes before the first probe of some.
        page = sidecar.wait(judged, 90)
        for _ in range(2):
            before = {name: asked(page, name) for name in well}
            page = sidecar.wait(
                lambda page, before=before: (
                    all(asked(page, name) >= before[name] + 2 for name in well)
                    and judged(page)
                ),
                2 * interval + SLACK_SECONDS,
            )
        stretched = page.value("triton_probe_interval_seconds", probe="synthetic")
        assert stretched == interval
        sidecar.wait(
            lambda page: (
                page.values("triton_model_serving").count(0.0) == HANGING
                and judged(page)
            ),
            60,
        )


def test_a_sidecar_that_was_stopped_does_not_take_the_server_for_dead(
    start_sidecar, settings
) -> None:
    with FakeTriton([FakeModel("m")]) as fake:
        fake.on("infer", model="m").reply(Slow(0.3))
        probe = {"interval_seconds": 0.2, "timeout_seconds": 1.0, "linger_seconds": 1.0}
        sidecar = start_sidecar(settings(fake, probe=probe))
        sidecar.wait(lambda page: page.value("triton_model_serving", model="m") == 1)
        for _ in range(2):
            sidecar.process.send_signal(signal.SIGSTOP)
            time.sleep(3)
            sidecar.process.send_signal(signal.SIGCONT)
            for _ in range(10):
                page = sidecar.page()
                assert page.value("triton_model_serving", model="m") != 0
                assert page.value("triton_up") != 0
                time.sleep(0.05)
        page = sidecar.wait(
            lambda page: page.sum("triton_probe_total", outcome="late") >= 1
        )
        assert page.sum("triton_probe_total", outcome="timeout") == 0


def test_a_model_whose_readiness_is_never_answered_costs_nothing_else(
    start_sidecar, settings
) -> None:
    """From Triton 2.65 on, calls wait behind a readiness call that hangs."""
    with FakeTriton([FakeModel("a"), FakeModel("b")], version="2.70.0") as fake:
        # Clearly more than the half second after which a call counts as held up.
        config = settings(fake, probe={"timeout_seconds": 2.0})
        for collector in config["collectors"][:2]:
            collector |= {"interval_seconds": 2.0, "timeout_seconds": 1.5}
        sidecar = start_sidecar(config)
        others = {
            "triton_up": {},
            "triton_model_serving": {"model": "b"},
            "tritonwatch_collector_success": {"collector": "statistics"},
        }

        def well(page):
            return [page.value(name, **labels) for name, labels in others.items()]

        sidecar.wait(lambda page: well(page) == [1, 1, 1])
        fake.hang_is_ready("a")
        timeouts = "triton_model_readiness_timeouts_total"
        over = time.monotonic() + 12
        while time.monotonic() < over:
            assert well(sidecar.page()) == [1, 1, 1]
            time.sleep(0.1)
        sidecar.wait(lambda page: page.sum(timeouts, model="a") >= 1)
