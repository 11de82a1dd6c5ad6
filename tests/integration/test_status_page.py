"""The status page in a real browser beside a real Triton."""

from __future__ import annotations

import json
import re
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
from fake_triton import FakeModel, FakeTriton
from fake_triton.behaviours import INTERNAL
from golden_probing import DEMO, record
from playwright.sync_api import expect
from status_pages import SLOS, WAIT_MS, table
from waiting import wait_until

from exporter.triton.faulty_model import Fault, set_fault, write_faulty_model
from exporter.triton.grpc import GrpcClient
from exporter.triton.protocol_types import InferRequest

pytestmark = pytest.mark.triton

ROOT = Path(__file__).parents[2]


def test_it_shows_what_metrics_show_and_follows(
    playground, settings, start_sidecar, opened
) -> None:
    config = settings(playground, probe={"interval_seconds": 0.2}, slos=SLOS)
    sidecar = start_sidecar(config)
    sidecar.wait(lambda page: page.value("triton_model_serving", model="double") == 1)
    page = opened(sidecar.port)
    rows = table(page, "Readiness and probes by model")
    expect(rows.get_by_role("row").filter(has_text="double")).to_contain_text("yes")
    expect(page.locator("#server")).to_contain_text("up and ready")
    expect(page.locator("#latency canvas")).to_be_visible()
    page.locator("#model").select_option("double 1")
    quantile = table(page, "Quantiles of double 1").get_by_role("row", name="p50")
    expect(quantile).to_be_visible(timeout=WAIT_MS)
    first = quantile.inner_text()
    # The same document is behind both, and a number that moves is redrawn.
    expect(quantile).not_to_have_text(re.compile(re.escape(first)), timeout=WAIT_MS)
    with page.expect_response("**/api/v1/status") as asked:
        pass
    series = asked.value.json()["series"]
    [median] = [
        entry["value"]
        for entry in series["triton_probe_latency_seconds"]
        if (entry["model"], entry["protocol"], entry["quantile"])
        == ("double", "grpc", "0.5")
    ]
    assert in_seconds(quantile.inner_text()) == pytest.approx(median, rel=0.006)
    [objective] = series["triton_slo_objective_ratio"]
    scraped = sidecar.page().value("triton_slo_objective_ratio", slo="answers")
    assert objective["value"] == scraped == 0.99
    expect(
        table(page, "Objectives").get_by_role("row", name="answers")
    ).to_contain_text("99 %")


def test_it_says_first_what_needs_attention_and_leads_there(
    settings, start_sidecar, opened
) -> None:
    with FakeTriton([FakeModel("honest"), FakeModel("liar")]) as fake:
        sidecar = start_sidecar(settings(fake, slos=SLOS))
        sidecar.wait(lambda p: p.sum("triton_model_serving") == 2)
        page = opened(sidecar.port)
        first = page.get_by_role("region", name="What needs attention")
        expect(first).to_contain_text("No known problems.", timeout=WAIT_MS)
        models = table(page, "Models").get_by_role("row")
        with fake.on("infer", model="liar").reply(INTERNAL):
            link = first.get_by_role(
                "link", name="liar: is ready, but does not answer correctly in time"
            )
            expect(link).to_be_visible(timeout=WAIT_MS)
            expect(first).not_to_contain_text("honest")
            expect(first).to_contain_text("runbook TritonReadinessLie")
            expect(
                first.get_by_role(
                    "link", name="answers: objective's error budget is spent"
                )
            ).to_be_visible()
            expect(models.nth(1)).to_contain_text("DOWN")
            expect(models.nth(1)).to_contain_text(
                "is ready, but does not answer correctly in time"
            )
            expect(models.nth(2)).to_contain_text("honest")
            expect(models.nth(2)).to_contain_text("SERVING")
            tiles = page.get_by_role("region", name="At a glance")
            expect(tiles).to_contain_text("of 2 models SERVING; 1 DOWN")
            liar = page.get_by_role("row").filter(has_text="liar")
            expect(liar.locator(".good")).to_have_count(0)
            link.click()
            expect(page.locator(":target")).to_contain_text("Does it really serve?")
            first.get_by_role("link", name="TritonReadinessLie").first.click()
            expect(page.get_by_role("main")).to_contain_text('{model="liar"}')
            page.go_back()
        # The model is mended; what its lie has cost is not.
        expect(link).to_be_hidden(timeout=WAIT_MS)
        expect(first).to_contain_text("answers")
        expect(page.locator("#marks")).to_contain_text("liar 1: DOWN to SERVING")


def test_of_many_models_the_broken_one_is_first_in_the_table_and_the_charts(
    settings, start_sidecar, opened
) -> None:
    names = [f"model-{number:02}" for number in range(60)]
    with FakeTriton([FakeModel(name) for name in names]) as fake:
        sidecar = start_sidecar(settings(fake))
        # Latency is known before the model breaks.
        of_last = {"model": names[-1], "protocol": "grpc", "quantile": "0.5"}
        sidecar.wait(lambda p: p.value("triton_probe_latency_seconds", **of_last))
        fake.on("infer", model=names[-1]).reply(INTERNAL)
        sidecar.wait(lambda p: p.sum("triton_model_serving") == 59)
        page = opened(sidecar.port)
        rows = table(page, "Models").get_by_role("row")
        expect(rows.nth(1)).to_contain_text(names[-1], timeout=WAIT_MS)
        expect(rows).to_have_count(1 + 50)
        expect(page.locator("#model option").first).to_have_text(f"{names[-1]} 1")


def test_without_a_probe_that_decides_no_tile_is_green(
    settings, start_sidecar, opened
) -> None:
    with FakeTriton([FakeModel("m")]) as fake:
        sidecar = start_sidecar(settings(fake, probe={"enabled": False}))
        page = opened(sidecar.port)
        tiles = page.get_by_role("region", name="At a glance")
        expect(tiles).to_contain_text("1 unproven", timeout=WAIT_MS)
        expect(tiles.locator(".good")).to_have_count(0)


def test_nothing_of_a_model_that_returns_wrong_answers_is_green(
    start_triton, settings, start_sidecar, opened, tmp_path
) -> None:
    repository, golden = tmp_path / "models", tmp_path / "golden.npz"
    for name in ("digits_fp32", "digits_int8"):
        write_faulty_model(repository, name, source=DEMO / name)
    triton = start_triton(repository)
    record(triton, golden, "--label", "label")
    fast = {"interval_seconds": 0.2, "max_requests_per_second": 50}
    often = {"idle_requests_per_second": 20, "idle_busy_ratio": 1, "request_share": 0.5}
    data = {"file": str(golden), "label": "label"}
    of_one = {"models": {"include": ["digits_fp32"]}, "data": data}
    sidecar = start_sidecar(
        settings(
            triton,
            probes=[
                {"kind": "synthetic", "interval_seconds": 0.5},
                {"kind": "golden", "busy_share": 0.5, **of_one, **fast, **often},
            ],
        )
    )
    page = opened(sidecar.port)
    models = table(page, "Models").get_by_role("row")
    of_liar = page.get_by_role("row").filter(has_text="digits_fp32")
    expect(models.filter(has_text="digits_fp32")).to_contain_text(
        "SERVING", timeout=WAIT_MS
    )
    expect(table(page, "Golden scores")).to_contain_text("pass", timeout=WAIT_MS)
    assert of_liar.locator(".good").count() > 0
    set_fault(repository, "digits_fp32", Fault("shifted_class"))
    expect(models.nth(1)).to_contain_text("LYING", timeout=2 * WAIT_MS)
    expect(models.nth(1)).to_contain_text("returns wrong answers: golden")
    # The headline, readiness, both probes, golden checks: every row that names it.
    assert of_liar.count() >= 3
    expect(of_liar.locator(".good")).to_have_count(0)
    expect(page.locator("#tiles .good")).to_have_count(0)
    other = page.get_by_role("row").filter(has_text="digits_int8")
    expect(other.locator(".good").first).to_be_visible()
    expect(page.get_by_role("region", name="What needs attention")).to_contain_text(
        "runbook TritonSilentFailure"
    )
    # The finding leads to the section with the row that fails.
    page.get_by_role("link", name="digits_fp32: returns wrong answers").click()
    expect(page.locator(":target")).to_contain_text(
        re.compile("accuracy fell.*answers are wrong; row")
    )
    models.get_by_role("link", name="digits_fp32").click()
    scores = page.locator("#scores")
    expect(scores.locator("canvas")).to_be_visible(timeout=WAIT_MS)
    expect(scores).to_have_attribute("aria-label", re.compile("golden accuracy 0"))
    expect(models).to_have_count(2)
    expect(models.nth(1)).to_contain_text("LYING")
    expect(other).to_have_count(0)


def test_a_model_has_a_page_of_its_own(
    playground, settings, start_sidecar, opened
) -> None:
    of_other = {**SLOS[0], "name": "other", "models": "sleepy"}
    of_it = {**SLOS[0], "name": "its", "models": "double"}
    config = settings(
        playground,
        probe={"overrides": {"sleepy": {"inputs": {"NONE": {"range": [0, 1]}}}}},
        slos=[of_other, of_it, *SLOS],
        power={
            "window_seconds": 1,
            "sources": [{"kind": "model", "idle_watts": 20, "full_watts": 60}],
        },
    )
    sidecar = start_sidecar(config)
    sidecar.wait(lambda page: page.value("triton_model_serving", model="double") == 1)
    page = opened(sidecar.port)
    expect(table(page, "Objectives")).to_contain_text("other", timeout=WAIT_MS)
    tiles, events = page.locator("#tiles"), page.locator("#recent-events")
    expect(tiles).to_contain_text("power (estimated from use)", timeout=WAIT_MS)
    expect(events).to_contain_text("model sleepy", timeout=WAIT_MS)
    table(page, "Models").get_by_role("link", name="double", exact=True).click()
    for name in ("Models", "Readiness and probes by model"):
        rows = table(page, name).get_by_role("row")
        expect(rows).to_have_count(2, timeout=WAIT_MS)
        expect(rows.nth(1)).to_contain_text("double")
    expect(table(page, "Objectives").get_by_role("row")).to_have_count(3)
    expect(table(page, "Objectives")).not_to_contain_text("other")
    expect(page.locator("#model option")).to_have_text(["double 1"], timeout=WAIT_MS)
    expect(events).not_to_contain_text("sleepy")
    expect(tiles).not_to_contain_text("power")
    expect(page.locator("#energy-and-cost")).not_to_contain_text(" W (model)")
    page.get_by_role("link", name="all models").click()
    expect(table(page, "Objectives")).to_contain_text("other", timeout=WAIT_MS)
    page.goto(f"http://127.0.0.1:{sidecar.port}/?model=nobody")
    expect(page.get_by_role("heading", name="tritonwatch")).to_contain_text(
        "nobody: Triton holds no such model"
    )


def test_its_charts_have_a_past_when_it_is_opened_also_after_a_reload(
    playground, settings, start_sidecar, opened
) -> None:
    sidecar = start_sidecar(settings(playground, probe={"interval_seconds": 0.2}))
    sidecar.wait(lambda page: page.value("triton_model_serving", model="double") == 1)

    def recorded(path=""):
        return json.loads(sidecar.get(f"/api/v1/history{path}").body)

    of_double = "?model=double&version=1"
    wait_until(lambda: recorded(of_double)["lines"].get("p50"), "a first point")
    wait_until(lambda: len(recorded()["times"]) >= 2, "a second point")
    begun = recorded()["times"][0]
    sidecar.process.send_signal(signal.SIGHUP)
    page = opened(sidecar.port)
    expect(page.locator("#marks")).to_contain_text(
        "configuration reloaded", timeout=WAIT_MS
    )
    page.locator("#model").select_option("double 1")
    page.wait_for_function(
        "begun => (latencies.get('double 1')?.times[0] ?? Infinity) <= begun"
        " && rates.times[0] <= begun",
        arg=begun,
        timeout=WAIT_MS,
    )


def test_a_comparison_without_an_interval_says_why(
    settings, start_sidecar, opened
) -> None:
    comparison = {
        "name": "new",
        "champion": "old",
        "challenger": "new",
        "inputs": {"source": "synthetic"},
        "budget": {"idle_pairs_per_second": 50},
        "metrics": ["latency_mean"],
    }
    with FakeTriton([FakeModel("old"), FakeModel("new")]) as fake:
        sidecar = start_sidecar(settings(fake, comparisons=[comparison]))
        page = opened(sidecar.port)
        row = table(page, "Verdicts").get_by_role("row", name="latency_mean")
        expect(row).to_contain_text("undecided", timeout=WAIT_MS)
        expect(row).to_contain_text("of 2,000 requests to each")
        # The effect's ends and the effective pairs.
        expect(row.get_by_role("cell", name="unknown", exact=True)).to_have_count(3)


def test_streamed_answers_are_told_and_whose_latency_is_not_known(
    start_triton, settings, start_sidecar, opened, tmp_path
) -> None:
    repository = tmp_path / "models"
    for model in (ROOT / "deploy/models/llm", ROOT / "tests/data/models/double"):
        shutil.copytree(model, repository / model.name)
    triton = start_triton(
        repository,
        arguments=[
            f"--trace-config=triton,file={tmp_path}/trace",
            "--trace-config=triton,log-frequency=1",
            "--trace-config=rate=1",
            "--trace-config=level=TIMESTAMPS",
        ],
    )
    files = {"path": f"{tmp_path}/trace", "owner": True}
    traces = {"kind": "traces", "interval_seconds": 0.3, "otlp": None, "files": files}
    sidecar = start_sidecar(
        settings(
            triton,
            probes=[],
            collectors=[
                {"kind": "server", "interval_seconds": 0.5},
                {"kind": "statistics", "interval_seconds": 0.5},
                traces,
            ],
        )
    )
    page = opened(sidecar.port)
    row = table(page, "Streamed answers by model").get_by_role("row", name="llm")
    client = GrpcClient(triton.grpc)
    prompt = np.array([b"why is it slow"], object)
    inputs = {"text_input": prompt, "stream": np.array([True])}
    request = InferRequest(
        "llm", "", "", inputs, {"text_input": "BYTES", "stream": "BOOL"}
    )

    def both_are_known():
        client.infer_stream(request, timeout_seconds=10)
        return row.is_visible() and row.inner_text().count(" ms") >= 2

    wait_until(both_are_known, "both medians")
    client.close()
    expect(page.locator("#tiles")).to_contain_text("the slowest known; 1 unknown")


def in_seconds(row: str) -> float:
    number, unit = re.search(r"([\d.]+) (µs|ms|s)\b", row).groups()
    return float(number) * {"µs": 1e-6, "ms": 1e-3, "s": 1.0}[unit]


def test_it_says_when_the_sidecar_is_gone_and_goes_on_when_it_is_back(
    playground, settings, start_sidecar, opened
) -> None:
    config = settings(playground)
    sidecar = start_sidecar(config)
    page = opened(sidecar.port)
    expect(page.locator("#server")).to_contain_text("ready", timeout=WAIT_MS)
    sidecar.end()
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("cannot be reached", timeout=WAIT_MS)
    again = start_sidecar(
        config | {"listen": {"address": "127.0.0.1", "port": sidecar.port}}
    )
    assert again.port == sidecar.port
    expect(alert).to_be_hidden(timeout=WAIT_MS)
