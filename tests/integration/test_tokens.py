"""Tokens and backend metrics of the demo's language model on a real Triton.

The client keeps books of its own, by what each answer says of its tokens, while the
sidecar's probes ask the same model all the time.
"""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest
import urllib3
from llm_clients import Clients
from meanwhile import repeated
from small_models import config as small_config
from small_models import write_model
from waiting import patience

from exporter.triton.embedded import EmbeddedTriton

pytestmark = pytest.mark.triton

MODEL = Path(__file__).parents[2] / "deploy" / "models" / "llm"
LLM = {"model": "llm", "version": "1"}
IDLE_WATTS = 20
MOST_TOKENS = 16
"""Of one answer to a request that names no limit."""


HOSTILE = """
import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    def initialize(self, args):
        self.kept = []
        me = {"model": args["model_name"], "version": args["model_version"]}
        self.show("vllm:num_requests_running", "GAUGE", me, float("nan"))
        self.show("vllm:prompt_tokens_total", "COUNTER", me, 5)
        self.show("my:queue", "GAUGE", {**me, "lane": "a"}, 7)
        self.show("nv_inference_count", "COUNTER", {**me, "x": "forged"}, 1e6)
        self.show("vllm:kv_cache_usage_perc", "GAUGE", {**me, "n": "x" * 3000}, 1)
        for number in range(20):
            labels = {**me, "n": f"{number}\\n"}
            self.show("vllm:num_requests_waiting", "GAUGE", labels, number)

    def show(self, name, kind, labels, value):
        family = pb.MetricFamily(
            name=name,
            description="one line\\nvllm:generation_tokens_total broken {\\n",
            kind=getattr(pb.MetricFamily, kind),
        )
        metric = family.Metric(labels=labels)
        metric.increment(value)
        self.kept += [family, metric]

    def execute(self, requests):
        y = np.zeros(1, np.float32)
        return [pb.InferenceResponse([pb.Tensor("y", y)]) for _ in requests]
"""


@pytest.fixture
def server(triton_environment, tmp_path):
    shutil.copytree(MODEL, tmp_path / "models" / "llm")
    write_model(tmp_path / "models", "hostile", small_config(), HOSTILE)
    with EmbeddedTriton(
        tmp_path / "models",
        environment=triton_environment,
        model_control="explicit",
        arguments=["--load-model=llm"],
    ) as started:
        yield started


@pytest.fixture
def config(settings, server):
    return settings(
        server,
        probe={
            "overrides": {"llm": {"inputs": {"text_input": {"values": ["Why slow?"]}}}}
        },
        power={
            "interval_seconds": 0.5,
            "window_seconds": 1,
            "rate_window_seconds": 600,
            "sources": [
                {
                    "kind": "model",
                    "idle_watts": IDLE_WATTS,
                    "full_watts": 80,
                    "use": "busy",
                }
            ],
        },
        cost={"electricity_price_per_kwh": 0.3, "grid_grams_per_kwh": 400, "pue": 1.5},
    )


def counted(page, direction):
    return page.value(
        "triton_tokens_total", **LLM, direction=direction, source="backend"
    )


def agrees(clients, above=0.0):
    return lambda page: (
        0 <= counted(page, "input") - clients.input <= above
        and 0 <= counted(page, "output") - clients.output <= above
    )


def unknown_of(page):
    return page.sum("triton_own_requests_tokens_unknown_total")


def probed(page, number):
    done = page.value("triton_own_requests_total", **LLM, outcome="success")
    return done is not None and done >= number


def backend_tokens(page, direction="output"):
    return page.value("triton_backend_tokens_total", **LLM, direction=direction) or 0


def test_production_is_what_the_clients_count_while_probes_ask(
    server, config, start_sidecar
):
    before = Clients(server)
    before.ask(5)
    sidecar = start_sidecar(config)
    sidecar.wait(lambda page: counted(page, "output") == 0)
    clients = Clients(server)
    for _ in range(5):
        clients.ask(20)
        page = sidecar.wait(agrees(clients))
    page = sidecar.wait(lambda page: probed(page, 5))
    assert agrees(clients)(page)
    # Our own are in the backend's numbers, and those of before us.
    assert backend_tokens(page) > before.output + clients.output
    unknown = page.values("triton_own_requests_tokens_unknown_total", **LLM)
    assert unknown == [0, 0]
    assert page.value("triton_backend_requests_waiting", **LLM) == 0
    assert 0 <= page.value("triton_backend_kv_cache_usage_ratio", **LLM) <= 1
    assert page.value("triton_request_failures_total", **LLM, reason="OTHER") == 0
    assert page.value("triton_backend_preemptions_total", **LLM) == 0
    refused = page.sum("tritonwatch_metrics_page_refused_total")
    assert refused == 0


def test_what_runs_and_waits_is_shown_while_it_does(server, config, start_sidecar):
    sidecar = start_sidecar(config)
    sidecar.wait(lambda page: counted(page, "output") == 0)
    clients = Clients(server)
    with repeated(lambda: clients.ask(48, tokens=200, at_once=24)):
        sidecar.wait(
            lambda page: (
                (page.value("triton_backend_requests_running", **LLM) or 0) >= 10
                and (page.value("triton_backend_kv_cache_usage_ratio", **LLM) or 0)
                > 0.3
            )
        )
    # Probes that the full queue held too long were given up: their tokens are unknown.
    sidecar.wait(lambda page: agrees(clients, unknown_of(page) * MOST_TOKENS)(page))


def test_nothing_of_production_is_lost_or_made_up_by_restarts_and_reloads(
    server, config, start_sidecar
):
    sidecar = start_sidecar(config)
    clients = Clients(server)
    sidecar.wait(lambda page: counted(page, "output") == 0)
    clients.ask(30)
    sidecar.wait(agrees(clients))
    high = backend_tokens(sidecar.page())
    server.restart()
    # Of ours, what the old server counted after the last look is known by the ledger.
    sidecar.wait(lambda page: page.value("triton_up") == 1)
    clients.ask(30)
    page = sidecar.wait(agrees(clients))
    assert backend_tokens(page) < high + clients.output
    urllib3.request(
        "POST",
        f"http://{server.http}/v2/repository/models/llm/unload",
        timeout=patience(60),
    )
    sidecar.wait(lambda page: page.value("triton_model_ready", **LLM) in (0, None))
    urllib3.request(
        "POST",
        f"http://{server.http}/v2/repository/models/llm/load",
        timeout=patience(60),
    )
    sidecar.wait(lambda page: page.value("triton_model_ready", **LLM) == 1)
    clients.ask(30)
    sidecar.wait(agrees(clients))


def test_a_hostile_model_costs_nobody_else_a_number(server, config, start_sidecar):
    urllib3.request(
        "POST",
        f"http://{server.http}/v2/repository/models/hostile/load",
        timeout=patience(60),
    )
    (statistics,) = (c for c in config["collectors"] if c["kind"] == "statistics")
    statistics["backend_metrics"] = {"queue": {"series": "my:queue"}}
    sidecar = start_sidecar(config)
    clients = Clients(server)
    sidecar.wait(lambda page: counted(page, "output") == 0)
    clients.ask(30)
    page = sidecar.wait(agrees(clients))
    hostile = {"model": "hostile", "version": "1"}
    counters = page.all("triton_statistics_disagreement_ratio", **hostile)
    assert {value for _, value in counters} == {0}
    assert page.value("triton_backend_requests_waiting", **hostile) == sum(range(20))
    for gone in ("requests_running", "kv_cache_usage_ratio"):
        assert page.value(f"triton_backend_{gone}", **hostile) is None
    for reason in ("value", "malformed", "too_long", "foreign_labels"):
        refused = page.value("tritonwatch_metrics_page_refused_total", reason=reason)
        assert refused > 0, reason
    assert page.value("triton_backend_requests_waiting", **LLM) is not None
    # The configuration names one more.
    queue = page.all("triton_backend_value")
    assert queue == [({**hostile, "name": "queue"}, 7)]


def test_energy_of_tokens_balances_with_that_of_the_model(
    server, config, start_sidecar
):
    sidecar = start_sidecar(config)
    clients = Clients(server)
    # Tokens from before the first window are in no balance.
    sidecar.wait(
        lambda page: (
            counted(page, "output") == 0
            and page.value("triton_idle_energy_joules_total") is not None
        )
    )
    for _ in range(10):
        clients.ask(20, tokens=40)
    joules = "triton_token_energy_joules"

    def settles(page):
        return agrees(clients)(page) and page.value(joules, **LLM, basis="active")

    page = sidecar.wait(settles)
    assert page.value("triton_tokens_total", **LLM, direction="output") > 0

    def balances(page):
        energy = page.value("triton_model_energy_joules_total", **LLM)
        each = page.value(joules, **LLM, basis="active")
        return each * clients.output == pytest.approx(energy, rel=1e-3)

    # Once all tokens are in, and what they took; it stays so for two windows.
    sidecar.wait(balances)
    threading.Event().wait(3)
    page = sidecar.page()
    assert balances(page)
    energy = page.value("triton_model_energy_joules_total", **LLM)
    each = page.value(joules, **LLM, basis="active")
    per_kwh = 1.5 / 3.6e6
    grams = page.value(
        "triton_model_carbon_per_thousand_tokens_grams", **LLM, basis="active"
    )
    assert grams == pytest.approx(1000 * each * 400 * per_kwh)
    price = page.value(
        "triton_model_cost_per_thousand_tokens", **LLM, basis="active", currency="USD"
    )
    assert price == pytest.approx(1000 * each * 0.3 * per_kwh)
    # The statistics alone show the milliseconds in which requests were taken in. By the
    # model's formulas tokens take longer, with four clients and a probe at once.
    generating = clients.output / 5 * (0.002 + 5 * 0.000125)
    assert energy > generating * (80 - IDLE_WATTS)
