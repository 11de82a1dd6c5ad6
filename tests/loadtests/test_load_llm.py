"""Load on the demo's language model, whose times are known, on the real Triton."""

from __future__ import annotations

import json

import numpy as np
import pytest
from slow_llm import (
    DECODE,
    DECODE_REQUEST,
    PLACES,
    PREFILL,
    PREFILL_TOKEN,
    metric,
    slow_llm,
)

from exporter.cli import main
from exporter.triton.embedded import EmbeddedTriton
from loadtests.errors import PlanError
from loadtests.execute import execute, prepared
from loadtests.result import Outcome
from loadtests.scenario import Scenario

pytestmark = pytest.mark.triton

PROMPT, ANSWER = 100, 30


@pytest.fixture(scope="module")
def server(triton_environment, tmp_path_factory):
    folder = slow_llm(tmp_path_factory.mktemp("models"))
    with EmbeddedTriton(folder, environment=triton_environment) as started:
        yield started


def scenario_of(server, protocol, profile, **model):
    return Scenario.model_validate(
        {
            "target": {"protocol": protocol, "address": getattr(server, protocol)},
            "models": [
                {
                    "model": "llm",
                    "prompts": {
                        "input_tokens": {"median": PROMPT},
                        "output_tokens": {"median": ANSWER},
                    },
                    "parameters": {"ignore_eos": True},
                    **model,
                }
            ],
            "profile": profile,
            "goodput": "ttft<10s,itl<1s",
        }
    )


FIRST, GAP = "time_to_first_token_seconds", "time_per_output_token_seconds"


def counted(server):
    names = ("generation_tokens_total", f"{FIRST}_sum", f"{GAP}_sum")
    return np.array([metric(server, name) for name in names])


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_run_measures_what_the_model_s_formulas_say(server, protocol) -> None:
    profile = {"kind": "closed", "concurrency": 1, "duration_seconds": 4.0}
    scenario = scenario_of(server, protocol, profile)
    mix = prepared(scenario)
    before = counted(server)
    result = execute(scenario, mix)
    tokens, first, gaps = counted(server) - before
    requests = result.requests
    assert requests.count(Outcome.OK) == len(requests) > 3, result.errors
    assert (requests.tokens == ANSWER).all()
    assert (requests.responses == ANSWER).all()
    assert requests.tokens.sum() == tokens
    assert result.first_response.count == len(requests)
    assert result.between_responses.count == len(requests) * (ANSWER - 1)
    # The model's steps are due at absolute times. A busy machine makes any of them late,
    # never early, so a gap after a late step is shorter than the formula.
    alone = PREFILL + PROMPT * PREFILL_TOKEN
    whole = alone + (ANSWER - 1) * (DECODE + DECODE_REQUEST)
    assert (requests.first - requests.sent).min() >= 0.99 * alone
    assert (requests.done - requests.sent).min() >= 0.99 * whole
    # How late they were is in the server's own times: the client's differ by the way.
    seen = requests.first - requests.sent
    assert seen.min() <= 1.15 * first / len(requests)
    assert requests.mean_gap.mean() == pytest.approx(
        gaps / len(requests) / (ANSWER - 1), rel=0.1
    )
    np.testing.assert_allclose(
        requests.mean_gap, (requests.done - requests.first) / (ANSWER - 1)
    )
    assert (requests.longest_gap >= requests.mean_gap - 1e-6).all()


TRIES = 3
"""A busy machine spoils runs of a search: one search finds what the model can."""


def searched(server, path):
    """The capacity that a search found, or the highest rate that it held if it ended there."""
    command = (
        f"load capacity --quiet --address {server.grpc} --model llm --input-tokens 20 "
        f"--output-tokens 10 --slo ttft_p90<1s,itl_p90<100ms --budget 60 "
        f"--run-seconds 3 --repetitions 3 --json {path}"
    )
    assert main(command.split()) in (0, 1, 3)
    document = json.loads(path.read_text("utf-8"))
    rate = (document["capacity"] or {}).get("requests_per_second", {})
    if rate.get("estimate"):
        assert 0 <= (rate["low"] or 0.0) <= rate["estimate"]
        return document, rate["estimate"]
    if document["valid"] and document["ending"] == "every_rate_holds":
        return document, max(lv["requests_per_second"] for lv in document["levels"])
    return document, 0.0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_capacity_under_limits_of_streams_is_within_what_the_model_can(
    server, tmp_path
) -> None:
    # One at a time would be the least; eight that share each step, and their prompts read
    # in no time, the most.
    alone = PREFILL + 20 * PREFILL_TOKEN + 9 * (DECODE + DECODE_REQUEST)
    least, most = 1 / alone, PLACES / (10 * (DECODE + PLACES * DECODE_REQUEST))
    for _ in range(TRIES):
        document, found = searched(server, tmp_path / "capacity.json")
        assert found <= 1.1 * most
        if found >= least:
            break
    assert found >= least, (document["conclusion"], document["reasons"])
    assert {"ttft_p90<1s", "itl_p90<100ms"} == set(document["levels"][0]["shares"])
    # What Triton books of such a model is the time in which it accepts requests.
    assert all(level["phases"] is None for level in document["levels"])
    assert document["saturation"]["resource"] in ("unknown", "sender", "server cpu")


def test_whole_answers_are_asked_for_by_generate(server) -> None:
    profile = {"kind": "closed", "concurrency": 1, "duration_seconds": 2.0}
    scenario = scenario_of(server, "http", profile, stream=False)
    scenario = scenario.model_copy(update={"goodput": None})
    mix = prepared(scenario)
    (before, *_), result = counted(server), execute(scenario, mix)
    requests = result.requests
    assert requests.count(Outcome.OK) == len(requests) > 3, result.errors
    assert (requests.tokens == ANSWER).all()
    assert requests.tokens.sum() == counted(server)[0] - before
    assert result.first_response.count == 0
    whole = PREFILL + PROMPT * PREFILL_TOKEN + (ANSWER - 1) * (DECODE + DECODE_REQUEST)
    assert (requests.done - requests.sent).min() >= 0.99 * whole


def test_whole_answers_are_refused_where_they_cannot_be_had(server) -> None:
    profile = {"kind": "closed", "duration_seconds": 1.0}
    with pytest.raises(PlanError, match="with the protocol http"):
        prepared(scenario_of(server, "grpc", profile, stream=False))
    with pytest.raises(PlanError, match="does not stream"):
        prepared(scenario_of(server, "http", profile, stream=False))
