"""Numbers of the status page that only a browser computes, and its doubts about numbers."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, get_args

import pytest
from fake_triton import FakeModel, FakeTriton
from playwright.sync_api import expect
from status_pages import WAIT_MS, table

from drift.numerics.confidence_calibration import (
    LEAST_OUTPUTS,
    LEAST_SAMPLES,
    Condition,
)

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

pytestmark = pytest.mark.triton


ESTIMATED = (
    "Accuracy estimated without labels (not measured; does not detect concept drift)"
)
CONDITIONS = get_args(Condition)
OF_IT = {"model": "m", "version": "1"}
DOUBTS = {
    "calibrated": f"fewer than {LEAST_SAMPLES} golden samples",
    "enough_outputs": f"fewer than {LEAST_OUTPUTS} answers",
    "within_calibration": "confidences below all golden ones",
    "drift_watched": "drift of its inputs is not watched",
    "drift_guaranteed": "its drift reference guarantees nothing",
    "no_drift": "its inputs drifted",
    "golden_agrees": "golden data contradict it",
}


@pytest.fixture(scope="module")
def sidecar(settings, sidecar_process, tmp_path_factory):
    with FakeTriton([FakeModel("m")]) as fake:
        running = sidecar_process(settings(fake), tmp_path_factory.mktemp("sidecar"))
        with contextlib.closing(running):
            running.wait_listening()
            yield running


@pytest.fixture
def shown(sidecar, opened):
    """Open the page of a sidecar whose document has other series and parts as well."""

    def show(series: dict[str, list[dict[str, Any]]], **parts: Any) -> Page:
        def answer(route: Route) -> None:
            document = route.fetch().json() | parts
            document["series"] |= series
            route.fulfill(json=document)

        page = opened(sidecar.port)
        page.route("**/api/v1/status", answer)
        return page

    return show


def estimated(*failing: str) -> dict[str, list[dict[str, Any]]]:
    """Series of an accuracy estimated without labels, of which these conditions fail."""
    return {
        "triton_estimated_accuracy_ratio": [{**OF_IT, "value": 0.93}],
        "triton_estimated_accuracy_valid": [
            {**OF_IT, "condition": name, "value": name not in failing}
            for name in CONDITIONS
        ],
    }


def test_every_condition_of_an_estimate_has_its_doubt() -> None:
    assert DOUBTS.keys() == set(CONDITIONS)


def test_conditions_that_fail_are_doubts_in_words_and_none_is_no_proof(shown) -> None:
    page = shown(estimated(*CONDITIONS))
    doubt = table(page, ESTIMATED).get_by_role("row", name="0.93").locator(".bad")
    expect(doubt).to_have_text(
        f"do not rely on it: {', '.join(DOUBTS[name] for name in CONDITIONS)}",
        timeout=WAIT_MS,
    )
    page = shown(estimated())
    rows = table(page, ESTIMATED)
    expect(rows).to_contain_text("none found; only labels can show it", timeout=WAIT_MS)
    expect(rows.locator(".bad")).to_have_count(0)


@pytest.mark.parametrize(
    ("left", "text", "tile", "looks"),
    [
        (-11.2, "0 %, 12.2 times over budget", "12.2 times over budget", "bad"),
        (0.0, "0 %", "", "bad"),
        (0.2, "20 %", "", "warn"),
        (0.5, "50 %", "", "good"),
    ],
)
def test_an_overspent_budget_is_zero_and_how_often_it_was_spent(
    shown, left, text, tile, looks
) -> None:
    page = shown(
        {
            "triton_slo_objective_ratio": [{"slo": "answers", "value": 0.99}],
            "triton_slo_error_budget_remaining_ratio": [
                {"slo": "answers", "value": left}
            ],
        }
    )
    cell = table(page, "Objectives").locator(f"span.{looks}")
    expect(cell).to_have_text(text, timeout=WAIT_MS)
    [of_budget] = page.locator("#tiles .tile").filter(has_text="error budget").all()
    expect(of_budget.locator(f"b.{looks}")).to_have_text(text.split(",")[0])
    expect(of_budget).to_contain_text(tile)
    if not tile:
        expect(of_budget).not_to_contain_text("over budget")


@pytest.mark.parametrize(
    ("age_seconds", "too_early"), [(0, 3), (400, 2), (3_700, 1), (22_000, 0)]
)
def test_the_burn_rate_of_a_window_is_shown_once_the_data_are_that_old(
    shown, age_seconds, too_early
) -> None:
    series = {
        "triton_slo_objective_ratio": [{"slo": "answers", "value": 0.99}],
        "triton_slo_burn_rate": [
            {"slo": "answers", "window": window, "value": 3.5}
            for window in ("5m", "1h", "6h")
        ],
    }
    started = time.time() - age_seconds
    page = shown(
        series, tritonwatch={"version": "", "started_timestamp_seconds": started}
    )
    row = table(page, "Objectives").get_by_role("row", name="answers")
    expect(row).to_contain_text("99 %", timeout=WAIT_MS)
    early = row.get_by_role("cell", name="too early", exact=True)
    expect(early).to_have_count(too_early)


def test_energy_is_a_figure_only_where_its_error_is_known(shown) -> None:
    host = {"boundary": "host", "source": "model"}
    models = {"known": 0.12, "vague": 1.5, "new": None}
    page = shown(
        {
            "triton_inference_energy_joules": [
                {"model": name, "version": "1", **host, "basis": basis, "value": 0.77}
                for name in models
                for basis in ("active", "full")
            ],
            "triton_model_energy_share_error_ratio": [
                {"model": name, "version": "1", **host, "value": error}
                for name, error in models.items()
                if error is not None
            ],
        }
    )
    rows = table(page, "Energy by model").get_by_role("row")
    expect(rows.filter(has_text="known")).to_contain_text(
        "0.77 ± 12 %", timeout=WAIT_MS
    )
    for name in ("vague", "new"):
        row = rows.filter(has_text=name)
        expect(row).to_contain_text("not identifiable yet")
        expect(row).not_to_contain_text("0.77")


def test_a_chart_names_only_what_it_draws(shown) -> None:
    page = shown(
        {
            "triton_request_latency_seconds": quantiles(p5=0.002),
            "triton_golden_score_ratio": [SCORE],
        }
    )
    figures = page.locator("figure")
    latency, scores = figures.nth(0), figures.nth(2)
    expect(latency).to_contain_text("p50 of production", timeout=WAIT_MS)
    expect(scores.locator("canvas")).to_be_visible(timeout=WAIT_MS)
    expect(scores.locator(".u-series").filter(visible=True)).to_have_text(["set match"])
    for figure in (latency, scores):
        expect(figure).not_to_contain_text("interval")
        expect(figure).not_to_contain_text("p99")


SCORE = {**OF_IT, "dataset": "set", "metric": "match", "value": 1.0}
COMPARISON = {
    "comparison": "rollout",
    "champion": "m",
    "challenger": "new",
    "metrics": [],
    "problem": "new is not ready",
}


@pytest.mark.parametrize(
    ("section", "series", "parts", "line"),
    [
        (
            "are-the-answers-correct",
            {"triton_golden_score_ratio": [SCORE]},
            {},
            "Not judged: 1 of 1 golden sets",
        ),
        (
            "are-the-answers-correct",
            {"triton_spc_alarm": [{"signal": "rate", "chart": "ewma", "value": 1}]},
            {},
            "Out of control: rate",
        ),
        (
            "drift",
            {
                "triton_feature_drift_evidence": [
                    {"model": "m", "feature": "age", "value": -0.5}
                ]
            },
            {
                "drift": [
                    {"model": "llm", "side": "inputs", "state": "refused"}
                    | {key: [] for key in ("problems", "caveats", "blind_spots")}
                ]
            },
            "No data drifted; not watched: llm (refused)",
        ),
        ("comparisons", {}, {"comparisons": [COMPARISON]}, "rollout: new is not ready"),
    ],
)
def test_the_line_of_a_section_calls_nothing_fine_that_is_not_known(
    shown, section, series, parts, line
) -> None:
    brief = shown(series, **parts).locator(f"#{section} > summary > span")
    expect(brief).to_have_text(line, timeout=WAIT_MS)


def finding(subject: str, section: str, **rest: str) -> dict[str, Any]:
    of = {"subject": subject, "text": "fails", "section": section, "runbook": "R"}
    return {**of, "state": None, "model": "", "version": "", **rest}


def test_the_page_of_a_model_has_the_problems_of_its_comparisons_and_of_the_sidecar(
    shown, sidecar
) -> None:
    found = [
        finding("rollout", "Comparisons"),
        finding("other rollout", "Comparisons"),
        finding("ab", "Comparisons", model="new", state="SLOW"),
        finding("statistics", "What this sidecar does"),
    ]
    compared = [COMPARISON, {**COMPARISON, "comparison": "ab"}]
    page = shown({}, findings=found, comparisons=compared)
    page.goto(f"http://127.0.0.1:{sidecar.port}/?model=m")
    problems = page.locator("#attention li > a")
    expect(problems).to_have_text(
        ["rollout, ab: fails", "statistics: fails"], timeout=WAIT_MS
    )


def test_the_section_of_the_worst_problem_is_open(shown) -> None:
    page = shown(
        {},
        findings=[
            finding("m", "What this sidecar does", model="m", state="DRIFTED"),
            finding("m", "Does it really serve?", model="m", state="FAILING"),
        ],
        models=[{**OF_IT, "state": "FAILING", "since": 0.0, "reason": ""}],
    )
    page.get_by_role("button", name="Fold all").click()
    page.reload()
    expect(page.locator("#sections > [open] h2")).to_have_text(
        ["Does it really serve?"], timeout=WAIT_MS
    )


def test_evidence_of_drift_is_a_share_of_the_threshold(shown) -> None:
    page = shown(
        {
            "triton_model_drift_alarm": [{"model": "m", "value": 0}],
            "triton_model_drift_evidence_threshold": [
                {"model": "m", "side": "inputs", "value": 10}
            ],
            "triton_feature_drift_evidence": [
                {"model": "m", "feature": name, "value": value}
                for name, value in (("age", -0.5), ("bmi", 4.0))
            ],
        }
    )
    rows = table(page, "Evidence of drift by feature").get_by_role("row")
    expect(rows.nth(1)).to_contain_text("40 %", timeout=WAIT_MS)
    expect(rows.nth(1)).to_contain_text("bmi")
    expect(rows.nth(2)).to_contain_text("none")


def quantiles(**values: float) -> list[dict[str, Any]]:
    return [
        {**OF_IT, "quantile": f"0.{name[1:]}", "value": value}
        for name, value in values.items()
    ]


def test_a_quantile_without_an_interval_is_grey_and_no_headline(shown) -> None:
    bounds = [
        {**entry, "bound": bound}
        for entry in quantiles(p5=0.0021, p95=0.0061)
        for bound in ("lower", "upper")
    ]
    page = shown(
        {
            "triton_request_latency_seconds": quantiles(
                p5=0.002, p95=0.006, p99=0.0133
            ),
            "triton_request_latency_ci_seconds": bounds,
            "triton_request_latency_effective_samples": quantiles(p99=233.0),
        }
    )
    rows = table(page, "Models")
    expect(rows.locator("span.quiet")).to_have_text("13.3 ms", timeout=WAIT_MS)
    expect(page.locator("#headlines")).to_contain_text("Grey: too few independent")
    expect(page.locator("#tiles")).to_contain_text("p95 of m")
    expect(page.locator("#quantiles")).to_contain_text("233 of 368 independent")


def test_a_p99_that_is_not_known_yet_says_how_many_requests_it_needs(shown) -> None:
    page = shown({"triton_request_latency_seconds": quantiles(p5=0.002)})
    row = table(page, "Quantiles of m 1").get_by_role("row", name="p99")
    expect(row).to_contain_text("unknown: fewer than 368 requests", timeout=WAIT_MS)


def test_each_of_several_probes_of_a_model_is_named(sidecar, opened) -> None:
    def answer(route: Route) -> None:
        document = route.fetch().json()
        [one] = [p for p in document["probes"] if p["protocol"] == "grpc"]
        document["probes"].append({**one, "probe": "golden"})
        route.fulfill(json=document)

    page = opened(sidecar.port)
    rows = table(page, "Readiness and probes by model")
    expect(rows.get_by_text("ok", exact=True)).to_have_count(2, timeout=WAIT_MS)
    page.route("**/api/v1/status", answer)
    expect(rows.get_by_text("golden ok")).to_be_visible(timeout=WAIT_MS)
    expect(rows.get_by_text("synthetic ok")).to_be_visible()


def test_without_an_answer_of_the_server_nothing_is_said_of_its_models(
    shown, sidecar
) -> None:
    down = {"server": {"up": False, "ready": False}, "models": []}
    page = shown({}, **down)
    tiles = page.get_by_role("region", name="At a glance")
    expect(tiles).to_contain_text("models SERVING", timeout=WAIT_MS)
    expect(tiles).not_to_contain_text("of 0 models")
    serving = page.locator("#does-it-really-serve > summary")
    expect(serving).to_contain_text("no models are known")
    page.goto(f"http://127.0.0.1:{sidecar.port}/?model=m")
    subject = page.locator("#subject")
    expect(subject).to_contain_text("m", timeout=WAIT_MS)
    expect(subject).not_to_contain_text("holds no such model")
