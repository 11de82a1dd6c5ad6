"""The main job: what /metrics says of a real Triton."""

from __future__ import annotations

import contextlib
import signal
import threading
import time

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)

from exporter.catalogue import CATALOGUE

pytestmark = pytest.mark.triton

MODELS = ("double", "sleepy")


@pytest.fixture
def sidecar(playground, settings, start_sidecar):
    """A sidecar that has probed every model by both protocols."""
    started = start_sidecar(settings(playground))
    started.wait(lambda page: len(page.values("triton_probe_success")) == 4)
    return started


@pytest.fixture(scope="class")
def watching(_playground, settings, sidecar_process, tmp_path_factory):
    """The same for tests that only read; its probes would be production to another."""
    _playground.restore()
    started = sidecar_process(settings(_playground), tmp_path_factory.mktemp("sidecar"))
    with contextlib.closing(started):
        started.wait_listening()
        started.wait(lambda page: len(page.values("triton_probe_success")) == 4)
        yield started
        assert started.end(signal.SIGTERM)[0] == 0
        assert "event=stopped" in started.log


class TestOneSidecar:
    def test_the_page_says_what_the_server_is_and_holds(self, watching, playground):
        page = watching.page()
        assert page.value("triton_up") == 1
        assert page.value("triton_ready") == 1
        assert page.label("triton_server_info", "version") == {
            playground.triton.version
        }
        for model in MODELS:
            assert page.value("triton_model_ready", model=model, version="1") == 1
            assert page.value("triton_model_serving", model=model, version="1") == 1
        assert page.value("triton_models_unreadable") == 0
        assert page.values("tritonwatch_collector_success") == [1, 1, 1, 1]

    def test_probes_go_through_both_protocols_and_are_timed(self, watching):
        page = watching.wait(
            lambda p: min(p.values("triton_probe_total", outcome="ok")) >= 3
        )
        for model in MODELS:
            for protocol in ("grpc", "http"):
                labels = {"model": model, "version": "1", "protocol": protocol}
                ok = page.value("triton_probe_total", outcome="ok", **labels)
                assert page.sum("triton_probe_total", **labels) == ok
                assert page.value("triton_probe_duration_seconds_count", **labels) == ok
                seconds = page.value("triton_probe_duration_seconds_sum", **labels)
                assert 0 < seconds < ok * 0.5

    def test_openmetrics_comes_with_the_request_id_of_a_probe_as_exemplar(
        self, watching
    ):
        answer = watching.get("/metrics", accept="application/openmetrics-text")
        assert answer.headers["content-type"].startswith("application/openmetrics-text")
        exemplars = [
            sample.exemplar
            for family in parse_openmetrics(answer.text)
            for sample in family.samples
            if sample.exemplar and family.name == "triton_probe_duration_seconds"
        ]
        assert exemplars
        for exemplar in exemplars:
            assert exemplar.labels["request_id"].startswith("tritonwatch-synthetic-")
            assert exemplar.value > 0


def test_a_model_is_discovered_when_it_comes_and_forgotten_when_it_goes(
    sidecar, playground, limits
):
    playground.model("late", "load")
    came = time.monotonic()
    page = sidecar.wait(
        lambda p: p.value("triton_model_serving", model="late") == 1,
        limits.recovery,
        since=came,
    )
    assert page.value("triton_model_ready", model="late") == 1

    playground.model("late", "unload")
    page = sidecar.wait(
        lambda p: p.value("triton_model_ready", model="late") == 0,
        limits.recovery,
        since=time.monotonic(),
    )
    page = sidecar.settle()
    for name in page.series:
        if name not in ("triton_model_ready", "triton_model_loads_total"):
            assert not page.all(name, model="late"), f"{name} is stale"
    assert page.value("triton_model_serving", model="double") == 1


def test_counters_never_fall_over_a_reload_and_a_restart(
    playground, traffic, settings, start_sidecar
):
    # No probe ends beside a reload here: whether one did so before or after it cannot
    # be known, and would leave one of production uncounted.
    sidecar = start_sidecar(settings(playground, probe={"interval_seconds": 3600}))
    sidecar.wait(lambda page: len(page.values("triton_probe_success")) == 4)
    falls = _watch_for_falls(sidecar)
    with falls:
        traffic.double(7)
        sidecar.settle()
        playground.touch("double")
        playground.model("double", "load")
        traffic.double(5)
        page = sidecar.settle()
        assert (
            page.value("triton_requests_total", model="double", outcome="success") == 12
        )
        assert page.value("triton_statistics_resets_total", model="double") == 1
        playground.triton.kill()
        playground.triton.start()
        sidecar.wait(lambda p: p.value("triton_up") == 1)
        traffic.double(3)
        page = sidecar.settle(3)
    assert falls.found == []
    assert page.value("triton_requests_total", model="double", outcome="success") == 15
    assert page.value("triton_statistics_resets_total", model="double") == 2


class _watch_for_falls(threading.Thread):  # noqa: N801 - used like a function
    """Scrapes until the end of its block; `found` are counters that went down."""

    def __init__(self, sidecar):
        super().__init__(daemon=True)
        self.found = []
        self._sidecar = sidecar
        self._end = threading.Event()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self.join(10)

    def run(self):
        counters = {spec.name for spec in CATALOGUE if spec.kind == "counter"}
        highest = {}
        while not self._end.wait(0.05):
            page = self._sidecar.page()
            for name in counters & page.series.keys():
                for labels, value in page.series[name]:
                    key = (name, *sorted(labels.items()))
                    if value < highest.get(key, 0):
                        self.found.append((key, highest[key], value))
                    highest[key] = value


def test_triton_agrees_with_itself_also_after_a_reload(sidecar, playground, traffic):
    name = "triton_statistics_disagreement_ratio"
    traffic.double(20)
    page = sidecar.settle()
    assert len(page.values(name)) == 8
    assert set(page.values(name)) == {0}
    # The statistics start over with a reload, the page of Triton 2.51 goes on.
    playground.touch("double")
    playground.model("double", "load")
    traffic.double(20)
    page = sidecar.settle()
    assert page.value("triton_statistics_resets_total", model="double") == 1
    assert set(page.values(name)) == {0}
